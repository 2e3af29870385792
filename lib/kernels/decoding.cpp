#include "kernels/decoding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

namespace argosy::kernels::plain {

at::Tensor attention_step(const at::Tensor& q, const OptionalTensor& added, const CachedKeys& keys, std::int64_t window,
                          double scale, const OptionalTensor& bias) {
  const std::int64_t rows = q.size(0), heads = q.size(1), size = q.size(2), most = keys.places.size(1);
  if (rows == 0) return q.contiguous();
  const std::int64_t kv_heads = keys.pool.size(1) / 2;
  const at::Tensor length = keys.lengths.unsqueeze(1);
  at::Tensor pool = keys.pool;
  if (added) pool.index_copy_(0, keys.places.gather(1, length - 1).squeeze(1), added->contiguous());
  const at::Tensor position = at::arange(most, keys.lengths.options()).unsqueeze(0);
  at::Tensor seen = position.lt(length);
  if (window > 0) seen = seen.logical_and(position.ge(length - window));
  const at::Tensor places = at::where(position.lt(length), keys.places, 0).reshape({-1});
  const at::Tensor all =
      pool.index_select(0, places).view({rows, most, 2, kv_heads, size}).to(at::kFloat).permute({2, 0, 3, 1, 4});
  const at::Tensor query = q.to(at::kFloat).reshape({rows, kv_heads, heads / kv_heads, size});
  at::Tensor scores = at::matmul(query, all[0].transpose(-1, -2)) * scale;
  if (bias) {  // [H, most] → [rows, H, most], each row's from its own first column
    const at::Tensor column = (position + (most - length)).clamp_max(most - 1);
    scores =
        scores +
        bias->index_select(1, column.reshape({-1})).view({heads, rows, most}).transpose(0, 1).reshape(scores.sizes());
  }
  scores = scores.masked_fill(seen.logical_not().view({rows, 1, 1, most}), -std::numeric_limits<float>::infinity());
  const at::Tensor values = all[1].masked_fill(seen.logical_not().view({rows, 1, most, 1}), 0);
  return at::matmul(at::softmax(scores, -1), values).reshape({rows, heads, size}).to(q.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> top_log_probabilities(const at::Tensor& logits, std::int64_t live,
                                                         std::int64_t count) {
  const at::Tensor all = at::log_softmax(logits.narrow(1, 0, live), 1);
  const auto [value, id] = at::sort(all, /*stable=*/true, 1, /*descending=*/true);
  const std::int64_t there = std::min(live, count);
  const at::Tensor values = at::full({logits.size(0), count}, -std::numeric_limits<float>::infinity(), value.options());
  const at::Tensor ids = at::zeros({logits.size(0), count}, id.options());
  values.narrow(1, 0, there).copy_(value.narrow(1, 0, there));
  ids.narrow(1, 0, there).copy_(id.narrow(1, 0, there));
  return {values, ids};
}

}  // namespace argosy::kernels::plain
