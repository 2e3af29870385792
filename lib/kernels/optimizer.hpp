#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

/// Flat kernels of the optimizer step: torch operators `argosy::adamw_` and `argosy::sum_of_squares`.
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

struct AdamwOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  std::int64_t step = 1;  // updates done, this one included: bias correction
};

/// One AdamW update (arXiv:1711.05101) of a flat slice: g = gradient·coefficient; the new master also goes to
/// `weights`, rounded to its type. master, m, v, gradient: [n] fp32; weights: [n] bf16, absent when the master is the
/// weight; coefficient: [1] fp32, read on the device: the clip coefficient; negative: the step is skipped and nothing
/// changes.
void adamw_(at::Tensor master, at::Tensor m, at::Tensor v, const at::Tensor& gradient, const OptionalTensor& weights,
            const at::Tensor& coefficient, const AdamwOptions& options);

/// Σ x² as fp64 [1]: x [n] fp32 is squared and summed in fp64 within blocks of 128 elements, blocks added in order.
[[nodiscard]] at::Tensor sum_of_squares(const at::Tensor& x);

namespace plain {
void adamw_(at::Tensor& master, at::Tensor& m, at::Tensor& v, const at::Tensor& gradient, const OptionalTensor& weights,
            const at::Tensor& coefficient, double lr, double beta1, double beta2, double epsilon, double weight_decay,
            std::int64_t step);
at::Tensor sum_of_squares(const at::Tensor& x);
}  // namespace plain

}  // namespace argosy::kernels
