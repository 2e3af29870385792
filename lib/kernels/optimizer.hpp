#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/stochastic.hpp"

/// Flat kernels of the optimizer step.
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

struct AdamwOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  std::int64_t step = 1;  // number of updates, this one included; for bias correction
};

/// One AdamW update (arXiv:1711.05101) of a flat slice, with g = gradient·coefficient. The new master weights are also
/// written to `weights`, rounded to its type. master, m, v, gradient: [n] fp32. weights: [n] bf16, absent if the master
/// is the weight. coefficient: [1] fp32, the clip coefficient, read on the device; if it is negative, the step is
/// skipped and nothing changes.
void adamw_(const at::Tensor& master, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
            const OptionalTensor& weights, const at::Tensor& coefficient, const AdamwOptions& options);

/// Selects the random numbers that round an update. They depend only on seed, parameter, options.step and element, not
/// on the rank that owns the element.
struct Rounding {
  std::uint64_t seed = 0;
  std::int64_t parameter = 0;              // number of the parameter in the model
  std::int64_t begin = 0;                  // first element of the slice within it, a multiple of 128
  std::uint32_t domain = rounding_domain;  // tells apart several tensors with these names
};

/// One AdamW update of bf16 weights [n] without an fp32 master. It is computed in fp32 and rounded up or down at random
/// (kernels/stochastic.hpp), so that updates smaller than half the spacing of bf16 numbers are not lost. Otherwise as
/// adamw_.
void adamw_stochastic_(const at::Tensor& weights, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding);

/// Rounds values [n] fp32 to weights [n] bf16, up or down at random as adamw_stochastic_ does for update `step`, whose
/// domain is rounding_domain.
void round_stochastically_(const at::Tensor& weights, const at::Tensor& values, std::int64_t step,
                           const Rounding& rounding);

/// mean += (1 - decay) · (values - mean): a running mean of weights. mean, values: [n] fp32. coefficient: as in adamw_;
/// if it is negative, nothing changes.
void ema_(const at::Tensor& mean, const at::Tensor& values, const at::Tensor& coefficient, double decay);

/// Σ x² as fp64 [1]: x [n] fp32 is squared and summed in fp64 within blocks of 128 elements, blocks added in order.
[[nodiscard]] at::Tensor sum_of_squares(const at::Tensor& x);

namespace plain {
decltype(kernels::adamw_) adamw_;
decltype(kernels::adamw_stochastic_) adamw_stochastic_;
decltype(kernels::ema_) ema_;
decltype(kernels::sum_of_squares) sum_of_squares;
}  // namespace plain

}  // namespace argosy::kernels
