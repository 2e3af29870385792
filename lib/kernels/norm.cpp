#include "kernels/norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsqrt.h>

namespace argosy::kernels {

namespace plain {

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& x, const at::Tensor& weight,
                                                    const OptionalTensor& bias, double epsilon, bool rms) {
  const at::Tensor wide = x.to(at::kFloat);
  at::Tensor mean = rms ? at::empty({0}, wide.options()) : wide.mean(-1);
  const at::Tensor centred = rms ? wide : wide - mean.unsqueeze(-1);
  at::Tensor rstd = at::rsqrt(centred.square().mean(-1) + epsilon);
  at::Tensor y = centred * rstd.unsqueeze(-1) * weight.to(at::kFloat);
  if (bias) y = y + bias->to(at::kFloat);
  return {y.to(x.scalar_type()), mean, rstd};
}

at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& mean,
                         const at::Tensor& rstd, const OptionalTensor& add, const OptionalTensor& dweight,
                         const OptionalTensor& dbias, bool accumulate, bool rms) {
  const at::Tensor wide = x.to(at::kFloat), gradient = dy.to(at::kFloat);
  const at::Tensor normed = (rms ? wide : wide - mean.unsqueeze(-1)) * rstd.unsqueeze(-1);
  const auto write = [accumulate](const OptionalTensor& out, const at::Tensor& value) {
    if (!out) return;
    if (accumulate) {
      out->add_(value);
    } else {
      out->copy_(value);
    }
  };
  write(dweight, (gradient * normed).sum(0));
  write(dbias, gradient.sum(0));
  const at::Tensor scaled = gradient * weight.to(at::kFloat);
  at::Tensor dx = scaled - normed * (scaled * normed).mean(-1, true);
  if (!rms) dx = dx - scaled.mean(-1, true);
  dx = dx * rstd.unsqueeze(-1);
  if (add) dx = dx + add->to(at::kFloat);
  return dx.to(x.scalar_type());
}

}  // namespace plain

}  // namespace argosy::kernels
