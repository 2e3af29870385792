#include "kernels/gemm.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace argosy::kernels {

namespace plain {

PackedMatrix pack_matrix(const at::Tensor& matrix) { return {matrix, matrix.size(0), matrix.size(1)}; }

void gemm(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
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

void gemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const GemmOptions& options) {
  gemm(a, pack_matrix(b), c, options);
}

at::Tensor gemm(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& bias) {
  return gemm(a, pack_matrix(b), bias);
}

at::Tensor gemm(const at::Tensor& a, const PackedMatrix& b, const OptionalTensor& bias) {
  at::Tensor c = at::empty({a.size(0), b.columns}, a.options());
  gemm(a, b, c, {.bias = bias});
  return c;
}

}  // namespace argosy::kernels
