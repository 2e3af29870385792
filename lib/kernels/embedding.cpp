#include "kernels/embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>

#include <algorithm>

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

void embedding_backward(const at::Tensor& dx, const at::Tensor& ids, double scale, const at::Tensor& dtable,
                        bool accumulate, std::int64_t skip_id) {
  if (!accumulate) dtable.zero_();
  const at::Tensor flat = ids.reshape({-1});
  at::Tensor gradient = dx.reshape({flat.size(0), -1}).to(at::kFloat) * scale;
  if (skip_id >= 0) gradient = gradient * flat.ne(skip_id).unsqueeze(1);
  dtable.index_add_(0, flat, gradient);
}

}  // namespace plain

at::Tensor sinusoids(std::int64_t positions, std::int64_t width, spec::Position kind) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const std::int64_t half = width / 2;
  const bool fairseq = kind == spec::Position::sinusoidal_fairseq;
  const at::Tensor exponent = fairseq
                                  ? at::arange(half, options) / static_cast<double>(std::max<std::int64_t>(half - 1, 1))
                                  : at::arange(half, options) * 2.0 / static_cast<double>(width);
  const std::int64_t first = fairseq ? 2 : 0;
  const at::Tensor angle = at::arange(first, first + positions, options).unsqueeze(1) / at::pow(10000.0, exponent);
  return at::cat({angle.sin(), angle.cos()}, 1).to(at::kFloat);
}

}  // namespace argosy::kernels
