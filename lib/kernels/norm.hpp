#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

/// LayerNorm and RMSNorm over the last dimension, forward and backward. fp32 or bf16 values, statistics and sums in
/// fp32. Deterministic: the gradient of the weights is summed in two stages whose order depends on the shape alone
/// (arXiv:1607.06450, arXiv:1910.07467).
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

/// y = (x - mean)·rstd·weight + bias, row by row; with `rms` the mean is left out. x: [n, d]; weight, bias: [d] of the
/// type of x. Returns y [n, d], mean [n] fp32 (empty with `rms`), rstd [n] fp32.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> norm(const at::Tensor& x, const at::Tensor& weight,
                                                                  const OptionalTensor& bias, double epsilon, bool rms);

/// Gradient of x, plus `add`, the gradient of the residual path. dweight, dbias: [d] fp32, absent if frozen;
/// overwritten, or added to with `accumulate`.
[[nodiscard]] at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& mean, const at::Tensor& rstd, const OptionalTensor& add,
                                       const OptionalTensor& dweight, const OptionalTensor& dbias, bool accumulate,
                                       bool rms);

namespace plain {
decltype(kernels::norm) norm;
decltype(kernels::norm_backward) norm_backward;
}  // namespace plain

}  // namespace argosy::kernels
