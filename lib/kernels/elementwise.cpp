#include "kernels/elementwise.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>

#include <cmath>
#include <numbers>

#include "kernels/plain_random.hpp"

namespace argosy::kernels {

namespace plain {
namespace {

at::Tensor sigmoid_slope(const at::Tensor& u) {  // of swish
  const at::Tensor s = at::sigmoid(u);
  return s * (1 + u * (1 - s));
}

constexpr double cubic = 0.044715;  // of the approximation of gelu by tanh: u·σ(2·√(2/π)·(u + cubic·u³))
at::Tensor sigmoid_of_gelu(const at::Tensor& u) {
  return at::sigmoid((u + cubic * u * u * u) * (2 * std::sqrt(2 / std::numbers::pi)));
}
at::Tensor gelu_slope(const at::Tensor& u) {
  const at::Tensor s = sigmoid_of_gelu(u);
  return s + u * s * (1 - s) * (1 + 3 * cubic * u * u) * (2 * std::sqrt(2 / std::numbers::pi));
}

}  // namespace

at::Tensor dropout_add(const OptionalTensor& base, const at::Tensor& branch, double p, const DropoutKey& key,
                       const OptionalTensor& bias) {
  const std::int64_t threshold = std::lround(p * 65536);
  at::Tensor value = branch.to(at::kFloat);
  if (bias) value = value + bias->to(at::kFloat);
  if (threshold > 0) {
    const at::Tensor keep =
        random_halves(0, branch.numel(), key.seed, key.site, key.step, key.micro_batch, branch.device()).ge(threshold);
    value = value * keep.view(branch.sizes()) * static_cast<float>(65536.0 / static_cast<double>(65536 - threshold));
  }
  if (base) value = value + base->to(at::kFloat);
  return value.to(branch.scalar_type());
}

void add_noise_(const at::Tensor& x, const at::Tensor& scales, const DropoutKey& key) {
  const at::Tensor halves = random_halves(0, x.numel(), key.seed, key.site, key.step, key.micro_batch, x.device());
  const at::Tensor uniform = (halves.to(at::kFloat) + 0.5) / 32768 - 1;
  x.copy_(x.to(at::kFloat) + uniform.view(x.sizes()) * scales.view({-1}).repeat_interleave(x.size(-1)).view(x.sizes()));
}

namespace {

void activate(const at::Tensor& u, const at::Tensor& y, spec::Activation kind) {
  const at::Tensor wide = u.to(at::kFloat);
  switch (kind) {
    case spec::Activation::relu:
      y.copy_(at::relu(wide));
      break;
    case spec::Activation::swish:
      y.copy_(wide * at::sigmoid(wide));
      break;
    case spec::Activation::gelu:
      y.copy_(wide * 0.5 * (1 + at::erf(wide * std::numbers::sqrt2 / 2)));
      break;
    case spec::Activation::swiglu: {
      const std::int64_t width = wide.size(-1) / 2;
      const at::Tensor gate = wide.narrow(-1, 0, width), up = wide.narrow(-1, width, width);
      y.copy_(gate * at::sigmoid(gate) * up);
      break;
    }
    case spec::Activation::geglu: {
      const std::int64_t width = wide.size(-1) / 2;
      const at::Tensor gate = wide.narrow(-1, 0, width), up = wide.narrow(-1, width, width);
      y.copy_(gate * sigmoid_of_gelu(gate) * up);
      break;
    }
  }
}

}  // namespace

void activation(const at::Tensor& u, const OptionalTensor& bias, const at::Tensor& y, spec::Activation kind) {
  if (bias) u.add_(*bias);
  activate(u, y, kind);
}

at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& saved, spec::Activation kind,
                               const OptionalTensor& dbias, bool accumulate, const OptionalTensor& activated) {
  if (activated) activate(saved, *activated, kind);
  const at::Tensor gradient = dy.to(at::kFloat), wide = saved.to(at::kFloat);
  at::Tensor du;
  switch (kind) {
    case spec::Activation::relu:
      du = gradient * wide.gt(0);
      break;
    case spec::Activation::swish:
      du = gradient * sigmoid_slope(wide);
      break;
    case spec::Activation::gelu: {
      const at::Tensor density = at::exp(wide.square() * -0.5) / std::sqrt(2 * std::numbers::pi);
      du = gradient * (0.5 * (1 + at::erf(wide * std::numbers::sqrt2 / 2)) + wide * density);
      break;
    }
    case spec::Activation::swiglu: {
      const std::int64_t width = wide.size(-1) / 2;
      const at::Tensor gate = wide.narrow(-1, 0, width), up = wide.narrow(-1, width, width);
      du = at::cat({gradient * up * sigmoid_slope(gate), gradient * gate * at::sigmoid(gate)}, -1);
      break;
    }
    case spec::Activation::geglu: {
      const std::int64_t width = wide.size(-1) / 2;
      const at::Tensor gate = wide.narrow(-1, 0, width), up = wide.narrow(-1, width, width);
      du = at::cat({gradient * up * gelu_slope(gate), gradient * gate * sigmoid_of_gelu(gate)}, -1);
      break;
    }
  }
  du = du.to(dy.scalar_type());
  if (dbias) plain::column_sum(du, *dbias, accumulate);
  return du;
}

void column_sum(const at::Tensor& x, const at::Tensor& out, bool accumulate) {
  const at::Tensor sum = x.to(at::kFloat).sum(0);
  if (accumulate) {
    out.add_(sum);
  } else {
    out.copy_(sum);
  }
}

}  // namespace plain

}  // namespace argosy::kernels
