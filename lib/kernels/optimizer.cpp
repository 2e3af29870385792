#include "kernels/optimizer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "kernels/cpu/operators.hpp"
#include "kernels/operator.hpp"
#include "kernels/plain_random.hpp"
#include "kernels/stochastic.hpp"

namespace argosy::kernels {

namespace plain {

namespace {

/// The new values in fp32; m and v change in place, all but for what `skip` says.
at::Tensor updated(const at::Tensor& value, at::Tensor& m, at::Tensor& v, const at::Tensor& gradient,
                   const at::Tensor& coefficient, double lr, double beta1, double beta2, double epsilon,
                   double weight_decay, std::int64_t step) {
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

void adamw_(at::Tensor& master, at::Tensor& m, at::Tensor& v, const at::Tensor& gradient, const OptionalTensor& weights,
            const at::Tensor& coefficient, double lr, double beta1, double beta2, double epsilon, double weight_decay,
            std::int64_t step) {
  master.copy_(updated(master, m, v, gradient, coefficient, lr, beta1, beta2, epsilon, weight_decay, step));
  if (weights) {
    at::Tensor out = *weights;
    out.copy_(at::where(coefficient.lt(0), out, master.to(out.scalar_type())));
  }
}

void adamw_stochastic_(at::Tensor& weights, at::Tensor& m, at::Tensor& v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, double lr, double beta1, double beta2, double epsilon,
                       double weight_decay, std::int64_t step, std::int64_t seed, std::int64_t parameter,
                       std::int64_t begin) {
  const at::Tensor value =
      updated(weights.to(at::kFloat), m, v, gradient, coefficient, lr, beta1, beta2, epsilon, weight_decay, step);
  const at::Tensor r = random_halves(begin, weights.numel(), seed, parameter, step, rounding_domain, weights.device());
  const at::Tensor bits = value.view(at::kInt).to(at::kLong).bitwise_and(0xffffffffLL);
  const auto infinite = [](const at::Tensor& of) { return of.bitwise_and(0x7f800000LL).eq(0x7f800000LL); };
  const at::Tensor up = (bits + r).bitwise_and(0xffff0000LL), down = bits.bitwise_and(0xffff0000LL);
  const at::Tensor rounded = at::where(infinite(up), down, up).__rshift__(16).to(at::kShort).view(at::kBFloat16);
  weights.copy_(at::where(infinite(bits), value.to(at::kBFloat16), rounded));
}

void ema_(at::Tensor& mean, const at::Tensor& values, const at::Tensor& coefficient, double decay) {
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

void adamw_(at::Tensor master, at::Tensor m, at::Tensor v, const at::Tensor& gradient, const OptionalTensor& weights,
            const at::Tensor& coefficient, const AdamwOptions& options) {
  static const auto op = operator_handle<decltype(plain::adamw_)>("argosy::adamw_");
  op.call(master, m, v, gradient, weights, coefficient, options.lr, options.beta1, options.beta2, options.epsilon,
          options.weight_decay, options.step);
}

void adamw_stochastic_(at::Tensor weights, at::Tensor m, at::Tensor v, const at::Tensor& gradient,
                       const at::Tensor& coefficient, const AdamwOptions& options, const Rounding& rounding) {
  static const auto op = operator_handle<decltype(plain::adamw_stochastic_)>("argosy::adamw_stochastic_");
  op.call(weights, m, v, gradient, coefficient, options.lr, options.beta1, options.beta2, options.epsilon,
          options.weight_decay, options.step, static_cast<std::int64_t>(rounding.seed), rounding.parameter,
          rounding.begin);
}

void ema_(at::Tensor mean, const at::Tensor& values, const at::Tensor& coefficient, double decay) {
  static const auto op = operator_handle<decltype(plain::ema_)>("argosy::ema_");
  op.call(mean, values, coefficient, decay);
}

at::Tensor sum_of_squares(const at::Tensor& x) {
  static const auto op = operator_handle<decltype(plain::sum_of_squares)>("argosy::sum_of_squares");
  return op.call(x);
}

TORCH_LIBRARY_FRAGMENT(argosy, library) {
  library.def(
      "adamw_(Tensor(a!) master, Tensor(b!) m, Tensor(c!) v, Tensor gradient, Tensor(d!)? weights, Tensor coefficient, "
      "float lr, "
      "float beta1, float beta2, float epsilon, float weight_decay, int step) -> ()");
  library.def(
      "adamw_stochastic_(Tensor(a!) weights, Tensor(b!) m, Tensor(c!) v, Tensor gradient, Tensor coefficient, float "
      "lr, "
      "float beta1, float beta2, float epsilon, float weight_decay, int step, int seed, int parameter, int begin) -> "
      "()");
  library.def("ema_(Tensor(a!) mean, Tensor values, Tensor coefficient, float decay) -> ()");
  library.def("sum_of_squares(Tensor x) -> Tensor");
  register_versions(library, "adamw_", plain::adamw_, cpu::adamw_);
  register_versions(library, "adamw_stochastic_", plain::adamw_stochastic_, cpu::adamw_stochastic_);
  register_versions(library, "ema_", plain::ema_, cpu::ema_);
  register_versions(library, "sum_of_squares", plain::sum_of_squares, cpu::sum_of_squares);
}

}  // namespace argosy::kernels
