#include "kernels/optimizer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "kernels/plain_random.hpp"
#include "kernels/stochastic.hpp"

namespace argosy::kernels {

void round_stochastically_(const at::Tensor& weights, const at::Tensor& value, std::int64_t step,
                           const Rounding& rounding) {
  const at::Tensor r = plain::random_halves(rounding.begin, weights.numel(), rounding.seed, rounding.parameter, step,
                                            rounding.domain, weights.device());
  const at::Tensor bits = value.view(at::kInt).to(at::kLong).bitwise_and(0xffffffffLL);
  const auto infinite = [](const at::Tensor& of) { return of.bitwise_and(0x7f800000LL).eq(0x7f800000LL); };
  const at::Tensor up = (bits + r).bitwise_and(0xffff0000LL), down = bits.bitwise_and(0xffff0000LL);
  const at::Tensor rounded = at::where(infinite(up), down, up).__rshift__(16).to(at::kShort).view(at::kBFloat16);
  weights.copy_(at::where(infinite(bits), value.to(at::kBFloat16), rounded));
}

namespace plain {

namespace {

/// The new values in fp32; m and v change in place, all but for what `skip` says.
at::Tensor updated(const at::Tensor& value, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                   const at::Tensor& coefficient, const AdamwOptions& options) {
  const auto& [lr, beta1, beta2, epsilon, weight_decay, step] = options;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  const at::Tensor skip = coefficient.lt(0);
  const at::Tensor g = gradient * coefficient;
  const at::Tensor new_m = m * beta1 + g * (1 - beta1), new_v = v * beta2 + g.square() * (1 - beta2);
  const at::Tensor update = new_m / correction1 / (at::sqrt(new_v / correction2) + epsilon);
  m.copy_(at::where(skip, m, new_m));
  v.copy_(at::where(skip, v, new_v));
  return at::where(skip, value, value * (1 - lr * weight_decay) - update * lr);
}

}  // namespace

void adamw_(const at::Tensor& master, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
            const OptionalTensor& weights, const at::Tensor& coefficient, const AdamwOptions& options) {
  master.copy_(updated(master, m, v, gradient, coefficient, options));
  if (weights) weights->copy_(at::where(coefficient.lt(0), *weights, master.to(weights->scalar_type())));
}

void adamw_stochastic_(const at::Tensor& weights, const at::Tensor& m, const at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding) {
  round_stochastically_(weights, updated(weights.to(at::kFloat), m, v, gradient, coefficient, options), options.step,
                        rounding);
}

void ema_(const at::Tensor& mean, const at::Tensor& values, const at::Tensor& coefficient, double decay) {
  mean.lerp_(values, coefficient.lt(0).logical_not().to(at::kFloat) * (1 - decay));
}

at::Tensor sum_of_squares(const at::Tensor& x) {
  const at::Tensor squares = x.to(at::kDouble).square();
  const std::int64_t whole = x.numel() / 128 * 128;
  at::Tensor sum = squares.narrow(0, 0, whole).view({-1, 128}).sum(1).sum(0, true);
  if (whole < x.numel()) sum = sum + squares.narrow(0, whole, x.numel() - whole).sum(0, true);
  return sum;
}

}  // namespace plain

}  // namespace argosy::kernels
