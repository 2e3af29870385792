#include "kernels/optimizer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <cmath>

#include "kernels/cpu/operators.hpp"
#include "kernels/operator.hpp"

namespace argosy::kernels {

namespace plain {

void adamw_(at::Tensor& master, at::Tensor& m, at::Tensor& v, const at::Tensor& gradient, const OptionalTensor& weights,
            const at::Tensor& coefficient, double lr, double beta1, double beta2, double epsilon, double weight_decay,
            std::int64_t step) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  const at::Tensor skip = coefficient.lt(0);
  const at::Tensor g = gradient * coefficient;
  const at::Tensor new_m = m * beta1 + g * (1 - beta1), new_v = v * beta2 + g.square() * (1 - beta2);
  const at::Tensor update = new_m / correction1 / (at::sqrt(new_v / correction2) + epsilon);
  master.copy_(at::where(skip, master, master * (1 - lr * weight_decay) - update * lr));
  m.copy_(at::where(skip, m, new_m));
  v.copy_(at::where(skip, v, new_v));
  if (weights) {
    at::Tensor out = *weights;
    out.copy_(at::where(skip, out, master.to(out.scalar_type())));
  }
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

at::Tensor sum_of_squares(const at::Tensor& x) {
  static const auto op = operator_handle<decltype(plain::sum_of_squares)>("argosy::sum_of_squares");
  return op.call(x);
}

TORCH_LIBRARY_FRAGMENT(argosy, library) {
  library.def(
      "adamw_(Tensor(a!) master, Tensor(b!) m, Tensor(c!) v, Tensor gradient, Tensor(d!)? weights, Tensor coefficient, "
      "float lr, "
      "float beta1, float beta2, float epsilon, float weight_decay, int step) -> ()");
  library.def("sum_of_squares(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(argosy, CompositeExplicitAutograd, library) {
  library.impl("adamw_", plain::adamw_);
  library.impl("sum_of_squares", plain::sum_of_squares);
}
TORCH_LIBRARY_IMPL(argosy, CPU, library) {
  library.impl("adamw_", cpu::adamw_);
  library.impl("sum_of_squares", cpu::sum_of_squares);
}

}  // namespace argosy::kernels
