#include "kernels/gemm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>

#include <limits>

#include "core/error.hpp"

namespace argosy::kernels {

namespace plain {

namespace {

/// Integers from -127 to 127 of each row or column along `dim`, as fp32, and the scale that they are multiples of.
std::pair<at::Tensor, at::Tensor> to_int8(const at::Tensor& x, std::int64_t dim) {
  const at::Tensor wide = x.to(at::kFloat), highest = x.size(dim) == 0 ? wide.sum(dim) : wide.abs().amax(dim);
  constexpr float least = 127 / std::numeric_limits<float>::max();  // below, 127 / highest is not a number
  const at::Tensor inverse = at::where(highest.gt(least), 127 / highest, 0);
  return {(wide * inverse.unsqueeze(dim)).round(), highest / 127};
}

void gemm_int8(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
  const auto [integers, row_scales] = to_int8(a, 1);
  const at::Tensor sums = at::mm(integers.to(at::kDouble), b.data.to(at::kDouble)).to(at::kFloat);  // exact
  at::Tensor product = sums * (row_scales.unsqueeze(1) * b.scales);
  product = at::where(row_scales.isfinite().unsqueeze(1), product, std::numeric_limits<float>::quiet_NaN());
  if (options.bias) product = product + *options.bias;
  c.copy_(options.accumulate ? c + product : product);
}

}  // namespace

PackedMatrix pack_matrix(const at::Tensor& matrix, PackedType type) {
  if (type != PackedType::int8) return {matrix, matrix.size(0), matrix.size(1)};
  const auto [integers, scales] = to_int8(matrix, 0);
  ARGOSY_CHECK(scales.isfinite().all().item<bool>() || matrix.size(1) == 0, "int8 weights that are not finite");
  return {integers.to(at::kChar), matrix.size(0), matrix.size(1), scales, integers.sum(0).to(at::kInt)};
}

void gemm(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
  if (b.scales.defined()) return gemm_int8(a, b, c, options);
  const at::Tensor wide_a = a.to(at::kFloat), wide_b = b.data.to(at::kFloat);
  if (c.scalar_type() == at::kFloat && !options.bias) {
    at::Tensor out = c;
    if (options.accumulate) {
      at::addmm_out(out, c, wide_a, wide_b);
    } else {
      at::mm_out(out, wide_a, wide_b);
    }
    return;
  }
  const at::Tensor product =
      options.bias ? at::addmm(options.bias->to(at::kFloat), wide_a, wide_b) : at::mm(wide_a, wide_b);
  if (options.accumulate) {
    c.add_(product);
  } else {
    c.copy_(product);
  }
}

}  // namespace plain

namespace {

PackedMatrix packed_for(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::int64_t few = 512;  // of rows of the result: with more, a copy of `b` costs less than it saves
  return pack_matrix(b, a.stride(1) != 1 && a.size(0) <= few ? PackedType::brief : PackedType::same);
}

}  // namespace

void gemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const GemmOptions& options) {
  gemm(a, packed_for(a, b), c, options);
}

at::Tensor gemm(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& bias) {
  return gemm(a, packed_for(a, b), bias);
}

at::Tensor gemm(const at::Tensor& a, const PackedMatrix& b, const OptionalTensor& bias) {
  at::Tensor c = at::empty({a.size(0), b.columns}, a.options());
  gemm(a, b, c, {.bias = bias});
  return c;
}

}  // namespace argosy::kernels
