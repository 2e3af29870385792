#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "spec/activation.hpp"

/// Element-wise operations of a block: dropout with residual add, noise, bias with activation, sums over rows.
/// Dropout masks are never stored: element e of a call is kept or dropped by a 16-bit half of Philox4x32-10 with key
/// `seed` and counter (block, site, step, micro_batch), so the backward pass and a recomputed forward pass draw the
/// same mask. Noise takes the same halves as numbers.
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

/// Identifies a mask, or noise. site: the visit and the place in it, unique in a micro-batch.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0, micro_batch = 0, site = 0;
};

/// base + mask·(branch + bias)/(1-p). Without `base`, only the second term; without bias as well, this function is its
/// own gradient. p is rounded to 1/65536. base and branch have the same shape and type; bias has the size of the last
/// dimension, or is absent.
[[nodiscard]] at::Tensor dropout_add(const OptionalTensor& base, const at::Tensor& branch, double p,
                                     const DropoutKey& key, const OptionalTensor& bias = std::nullopt);

/// x += u·scale in place, with u uniform in (-1, 1): (2h + 1)/65536 - 1 for the half h. x: rows of the last dimension,
/// contiguous; scales: fp32, one for each row.
void add_noise_(const at::Tensor& x, const at::Tensor& scales, const DropoutKey& key);

/// u += bias in place, y = activation(u). u: [n, F] ([n, 2F] if it is gated); y: [n, F], may be u itself for relu.
void activation(const at::Tensor& u, const OptionalTensor& bias, const at::Tensor& y, spec::Activation kind);

/// Gradient of u. saved: y for relu, u otherwise. dbias: fp32, of the width of u; overwritten, or added to with
/// `accumulate`. activated (not for relu): receives y again, with the bits of the forward pass.
[[nodiscard]] at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& saved, spec::Activation kind,
                                             const OptionalTensor& dbias, bool accumulate,
                                             const OptionalTensor& activated = std::nullopt);

/// Writes the sum over the rows of x [n, d] to out [d] fp32, or adds it with `accumulate`.
void column_sum(const at::Tensor& x, const at::Tensor& out, bool accumulate);

namespace plain {
decltype(kernels::dropout_add) dropout_add;
decltype(kernels::add_noise_) add_noise_;
decltype(kernels::activation) activation;
decltype(kernels::activation_backward) activation_backward;
decltype(kernels::column_sum) column_sum;
}  // namespace plain

}  // namespace argosy::kernels
