#include "kernels/head_loss.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/cpu/operators.hpp"
#include "kernels/operator.hpp"

namespace argosy::kernels {

namespace plain {

at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels, double label_smoothing, double z, double loss_scale, std::int64_t live,
                     std::int64_t chunk_bytes, const OptionalTensor& dh, const OptionalTensor& dweight,
                     bool accumulate_weight, const OptionalTensor& dbias, bool accumulate_bias) {
  const at::Tensor wide_weight = weight.narrow(0, 0, live).to(at::kFloat);
  const std::int64_t rows = h.size(0),
                     chunk = std::clamp<std::int64_t>(chunk_bytes / (4 * live), 1, std::max<std::int64_t>(rows, 1));
  at::Tensor sums = at::zeros({4}, h.options().dtype(at::kDouble));
  if (dweight && !accumulate_weight) dweight->zero_();
  if (dbias && !accumulate_bias) dbias->zero_();
  const double uniform = label_smoothing / static_cast<double>(live);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    const at::Tensor x = h.narrow(0, begin, count).to(at::kFloat), label = labels.narrow(0, begin, count);
    const at::Tensor bears = label.ge(0), target = label.clamp_min(0).unsqueeze(1);
    at::Tensor logits = at::mm(x, wide_weight.t());
    if (bias) logits.add_(bias->narrow(0, 0, live));
    const at::Tensor lse = at::logsumexp(logits, 1);
    const at::Tensor nll = lse - logits.gather(1, target).squeeze(1);
    const at::Tensor loss = nll * (1 - label_smoothing) + (lse - logits.mean(1)) * label_smoothing + lse.square() * z;
    const at::Tensor right = logits.argmax(1).eq(label);
    const auto add = [&](std::int64_t slot, const at::Tensor& value) {
      sums.select(0, slot).add_((value.to(at::kDouble) * bears).sum());
    };
    add(0, nll);
    add(1, loss);
    add(2, bears);
    add(3, right);
    if (!dh && !dweight && !dbias) continue;
    at::Tensor gradient = at::exp(logits - lse.unsqueeze(1)) * (1 + 2 * z * lse.unsqueeze(1)) - uniform;
    gradient.scatter_add_(1, target, at::full_like(target, label_smoothing - 1, gradient.options()));
    gradient = gradient * (bears.unsqueeze(1) * loss_scale);
    if (dh) dh->narrow(0, begin, count).copy_(at::mm(gradient, wide_weight));
    if (dweight) dweight->narrow(0, 0, live).add_(at::mm(gradient.t(), x));
    if (dbias) dbias->narrow(0, 0, live).add_(gradient.sum(0));
  }
  return sums;
}

}  // namespace plain

at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels, const HeadLossOptions& options, const HeadLossGradients& gradients) {
  static const auto op = operator_handle<decltype(plain::head_loss)>("argosy::head_loss");
  return op.call(h, weight, bias, labels, options.label_smoothing, options.z, options.loss_scale, options.live,
                 options.chunk_bytes, gradients.dh, gradients.dweight, gradients.accumulate_weight, gradients.dbias,
                 gradients.accumulate_bias);
}

TORCH_LIBRARY_FRAGMENT(argosy, library) {
  library.def(
      "head_loss(Tensor h, Tensor weight, Tensor? bias, Tensor labels, float label_smoothing, float z, float "
      "loss_scale, "
      "int live, int chunk_bytes, Tensor(a!)? dh, Tensor(b!)? dweight, bool accumulate_weight, Tensor(c!)? dbias, "
      "bool accumulate_bias) -> Tensor");
  register_versions(library, "head_loss", plain::head_loss, cpu::head_loss);
}

}  // namespace argosy::kernels
