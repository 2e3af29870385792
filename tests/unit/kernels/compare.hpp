#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

/// Random values without a generator's state, and the distance between a kernel and its plain reference.
namespace argosy::test {

/// Deterministic, irregular values of about unit size.
inline at::Tensor values(at::IntArrayRef shape, at::ScalarType type = at::kFloat, double phase = 1) {
  const at::Tensor out = at::empty(shape, at::kFloat);
  float* data = out.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const double u = std::sin((static_cast<double>(i) + 1) * 12.9898 + phase * 78.233) * 43758.5453;
    data[i] = static_cast<float>(3.4 * (u - std::floor(u)) - 1.7);
  }
  return out.to(type);
}

inline at::Tensor poisoned(at::IntArrayRef shape) {
  return at::full(shape, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
}

/// rms difference over rms of the reference.
inline double distance(const at::Tensor& value, const at::Tensor& reference) {
  const at::Tensor a = value.to(at::kDouble), b = reference.to(at::kDouble);
  return ((a - b).square().mean().sqrt() / (b.square().mean().sqrt() + 1e-30)).item<double>();
}

/// fp32 1e-5 and wider for sums; bf16: one rounding of the result, 2^-9 relative.
inline double tolerance(at::ScalarType type, double fp32 = 1e-5) {
  return type == at::kFloat ? fp32 : std::max(fp32, 4e-3);
}

}  // namespace argosy::test
