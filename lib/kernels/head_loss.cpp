#include "kernels/head_loss.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace argosy::kernels {

namespace plain {

at::Tensor head_loss(const at::Tensor& h, const at::Tensor& weight, const OptionalTensor& bias,
                     const at::Tensor& labels, const HeadLossOptions& options, const HeadLossOutputs& outputs) {
  const auto& [label_smoothing, z, truncation, loss_scale, live, chunk_bytes] = options;
  const auto& [dh, dweight, dbias, accumulate_weight, accumulate_bias, row_nll] = outputs;
  const at::Tensor wide_weight = weight.narrow(0, 0, live).to(at::kFloat);
  const std::int64_t rows = h.size(0),
                     chunk = std::clamp<std::int64_t>(chunk_bytes / (4 * live), 1, std::max<std::int64_t>(rows, 1));
  at::Tensor sums = at::zeros({5}, h.options().dtype(at::kDouble));
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
    const auto add = [&](std::int64_t slot, const at::Tensor& value, const at::Tensor& counts) {
      sums.select(0, slot).add_((value.to(at::kDouble) * counts).sum());
    };
    const at::Tensor p = at::exp(logits - lse.unsqueeze(1));
    at::Tensor kept = bears;
    if (truncation > 0) {
      const at::Tensor square = (p.square().sum(1) - 2 * at::exp(-nll) + 1).clamp_max(2);
      kept = bears.logical_and(square.gt(truncation * truncation).logical_not());  // NaN stays
    }
    add(0, nll, bears);
    add(1, loss, kept);
    add(2, at::ones_like(nll), bears);
    add(3, right, bears);
    add(4, at::ones_like(nll), bears.logical_xor(kept));
    if (row_nll) row_nll->narrow(0, begin, count).copy_(nll.masked_fill(bears.logical_not(), 0));
    if (!dh && !dweight && !dbias) continue;
    at::Tensor gradient = p * (1 + 2 * z * lse.unsqueeze(1)) - uniform;
    gradient.scatter_add_(1, target, at::full_like(target, label_smoothing - 1, gradient.options()));
    gradient = gradient * (kept.unsqueeze(1) * loss_scale);
    if (dh) dh->narrow(0, begin, count).copy_(at::mm(gradient, wide_weight));
    if (dweight) dweight->narrow(0, 0, live).add_(at::mm(gradient.t(), x));
    if (dbias) dbias->narrow(0, 0, live).add_(gradient.sum(0));
  }
  return sums;
}

}  // namespace plain

}  // namespace argosy::kernels
