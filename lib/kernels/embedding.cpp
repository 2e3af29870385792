#include "kernels/embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>

#include "kernels/cpu/operators.hpp"
#include "kernels/operator.hpp"

namespace argosy::kernels {

namespace plain {

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, double scale, const OptionalTensor& position_table,
                     const OptionalTensor& positions, std::int64_t offset) {
  at::Tensor x =
      table.index_select(0, ids.reshape({-1})).view({ids.size(0), ids.size(1), table.size(1)}).to(at::kFloat) * scale;
  if (position_table && positions) {
    x = x + position_table->index_select(0, positions->reshape({-1})).view(x.sizes());
  } else if (position_table) {
    x = x + position_table->narrow(0, offset, ids.size(1));
  }
  return x.to(table.scalar_type());
}

void embedding_backward(const at::Tensor& dx, const at::Tensor& ids, double scale, at::Tensor& dtable, bool accumulate,
                        std::int64_t skip_id) {
  if (!accumulate) dtable.zero_();
  const at::Tensor flat = ids.reshape({-1});
  at::Tensor gradient = dx.reshape({flat.size(0), -1}).to(at::kFloat) * scale;
  if (skip_id >= 0) gradient = gradient * flat.ne(skip_id).unsqueeze(1);
  dtable.index_add_(0, flat, gradient);
}

}  // namespace plain

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, double scale, const OptionalTensor& position_table,
                     const OptionalTensor& positions, std::int64_t offset) {
  static const auto op = operator_handle<decltype(plain::embedding)>("argosy::embedding");
  return op.call(ids, table, scale, position_table, positions, offset);
}

void embedding_backward(const at::Tensor& dx, const at::Tensor& ids, double scale, at::Tensor dtable, bool accumulate,
                        std::int64_t skip_id) {
  static const auto op = operator_handle<decltype(plain::embedding_backward)>("argosy::embedding_backward");
  op.call(dx, ids, scale, dtable, accumulate, skip_id);
}

at::Tensor sinusoids(std::int64_t positions, std::int64_t width) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const std::int64_t half = width / 2;
  const at::Tensor divisor = at::pow(10000.0, at::arange(half, options) * 2.0 / static_cast<double>(width));
  const at::Tensor angle = at::arange(positions, options).unsqueeze(1) / divisor;
  return at::cat({angle.sin(), angle.cos()}, 1).to(at::kFloat);
}

TORCH_LIBRARY_FRAGMENT(argosy, library) {
  library.def(
      "embedding(Tensor ids, Tensor table, float scale, Tensor? position_table, Tensor? positions, int offset) -> "
      "Tensor");
  library.def(
      "embedding_backward(Tensor dx, Tensor ids, float scale, Tensor(a!) dtable, bool accumulate, int skip_id) -> ()");
  register_versions(library, "embedding", plain::embedding, cpu::embedding);
  register_versions(library, "embedding_backward", plain::embedding_backward, cpu::embedding_backward);
}

}  // namespace argosy::kernels
