#include "kernels/position_bias.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

#include "spec/positions.hpp"

namespace argosy::kernels {

namespace {

/// Of a head: one for each distance; none without queries and keys.
std::int64_t elements(std::int64_t queries, std::int64_t keys) { return std::max<std::int64_t>(0, keys + queries - 1); }

/// int64 [count], from the distance -(keys - 1) on.
at::Tensor buckets(std::int64_t count, std::int64_t keys, bool bidirectional, c10::Device device) {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(count));
  for (std::int64_t c = 0; c < count; ++c) all.push_back(spec::relative_bucket(c - (keys - 1), bidirectional));
  return at::tensor(all, at::kLong).to(device);
}

}  // namespace

at::Tensor alibi_bias(std::int64_t heads, std::int64_t queries, std::int64_t keys, c10::Device device) {
  const at::Tensor slopes = at::tensor(spec::alibi_slopes(heads), at::kDouble).unsqueeze(1);
  const at::Tensor distance = at::arange(elements(queries, keys), at::kDouble) - static_cast<double>(keys - 1);
  return (slopes * -distance.abs()).to(at::kFloat).to(device);
}

at::Tensor relative_bias(const at::Tensor& table, std::int64_t queries, std::int64_t keys, bool bidirectional) {
  const at::Tensor rows = buckets(elements(queries, keys), keys, bidirectional, table.device());
  return table.to(at::kFloat).index_select(0, rows).t().contiguous();
}

void relative_bias_backward(const at::Tensor& dbias, std::int64_t keys, bool bidirectional, const at::Tensor& dtable,
                            bool accumulate) {
  if (!accumulate) dtable.zero_();
  const at::Tensor bucket = buckets(dbias.size(1), keys, bidirectional, dbias.device()).unsqueeze(0),
                   row = at::arange(dtable.size(0), bucket.options()).unsqueeze(1);
  dtable.add_(at::matmul(row.eq(bucket).to(at::kFloat), dbias.t()));  // a GPU adds by index in no order
}

}  // namespace argosy::kernels
