#include "kernels/attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "spec/gpu_attention.hpp"

namespace argosy::kernels {

namespace plain {
namespace {

/// A part of the queries of a call, and what concerns them.
struct Part {
  std::int64_t first, count;  // queries
  std::int64_t position;      // of the first among the keys

  /// Cuts [rows, T, H, D], or [rows, T], to the queries.
  [[nodiscard]] at::Tensor of(const at::Tensor& x) const { return x.narrow(1, first, count); }
};

/// Calls f(Part) for all queries, some at a time.
template <class Function>
void for_parts(const at::Tensor& q, const at::Tensor& k, Function&& f) {
  const std::int64_t queries = q.size(1), keys = k.size(1), of_query = q.size(0) * q.size(2) * keys * 4;
  const std::int64_t most = std::max<std::int64_t>(1, spec::score_bytes / std::max<std::int64_t>(1, of_query));
  for (std::int64_t first = 0; first < queries; first += most)
    f(Part{first, std::min(most, queries - first), keys - queries + first});
}

/// bool [rows, 1, queries of the part, S]: who does not see whom.
at::Tensor unseen_by(const AttentionMask& mask, const Part& part, const at::Tensor& q, std::int64_t keys) {
  const std::int64_t rows = q.size(0), queries = part.count;
  const auto index = at::TensorOptions().dtype(at::kLong).device(q.device());
  const at::Tensor key = at::arange(keys, index).view({1, 1, 1, keys});
  const at::Tensor query = at::arange(part.position, part.position + queries, index).view({1, 1, queries, 1});
  at::Tensor seen = at::ones({rows, 1, queries, keys}, index.dtype(at::kBool)), past = key.le(query);
  if (mask.prompts) past = past.logical_or(key.lt(part.of(*mask.prompts).unsqueeze(1).unsqueeze(3)));
  if (mask.causal || mask.window > 0) seen = seen.logical_and(past);
  if (mask.window > 0) seen = seen.logical_and((query - key).abs().lt(mask.window));
  if (mask.key_lengths) seen = seen.logical_and(key.lt(mask.key_lengths->view({rows, 1, 1, 1})));
  if (mask.segments)
    seen =
        seen.logical_and(part.of(*mask.segments).unsqueeze(1).unsqueeze(3).eq(mask.segments->view({rows, 1, 1, keys})));
  return seen.logical_not();
}

/// [rows, S, K, D] → [rows, H, S, D] fp32, each head repeated for its group.
at::Tensor spread(const at::Tensor& x, std::int64_t heads) {
  return x.to(at::kFloat).repeat_interleave(heads / x.size(2), 2).transpose(1, 2);
}

/// The elements of a bias, or of its gradient, for the queries of a part: [H, S + queries - 1].
at::Tensor of_distances(const at::Tensor& bias, const Part& part, std::int64_t keys) {
  return bias.narrow(1, keys - part.position - part.count, keys + part.count - 1);
}

/// q·k·scale + bias: [rows, H, queries of the part, S]
at::Tensor scores_of(const at::Tensor& wide_q, const at::Tensor& wide_k, const AttentionMask& mask, const Part& part,
                     double scale) {
  const at::Tensor scores = at::matmul(wide_q, wide_k.transpose(-1, -2)) * scale;
  if (!mask.bias) return scores;
  const std::int64_t keys = wide_k.size(2);
  const auto index = at::TensorOptions().dtype(at::kLong).device(scores.device());
  const at::Tensor columns = at::arange(keys, index) + (part.count - 1) - at::arange(part.count, index).unsqueeze(1);
  return scores +
         of_distances(*mask.bias, part, keys).index_select(1, columns.view({-1})).view(scores.sizes().slice(1));
}

/// Sums of x [H, queries, S] over elements with the same j - i + queries - 1: [H, S + queries - 1]. Row by row moved by
/// one place and added, in an order that a GPU keeps.
at::Tensor sum_of_distances(const at::Tensor& x) {
  const std::int64_t heads = x.size(0), queries = x.size(1), keys = x.size(2), width = keys + queries - 1;
  const at::Tensor moved = at::zeros({heads, queries * (width + 1)}, x.options());
  moved.view({heads, queries, width + 1}).narrow(2, 0, keys).copy_(x.flip(1));
  return moved.narrow(1, 0, queries * width).view({heads, queries, width}).sum(1);
}

at::Tensor gather(const at::Tensor& x, std::int64_t kv_heads) {  // the reverse: sums groups
  const auto t = x.transpose(1, 2);
  return t.reshape({t.size(0), t.size(1), kv_heads, t.size(2) / kv_heads, t.size(3)}).sum(3);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  const std::int64_t heads = q.size(2);
  at::Tensor out = at::empty(q.sizes(), q.options()),
             lse = at::empty({q.size(0), heads, q.size(1)}, q.options().dtype(at::kFloat));
  const at::Tensor wide_k = spread(k, heads), wide_v = spread(v, heads);
  for_parts(q, k, [&](const Part& part) {
    const at::Tensor unseen = unseen_by(mask, part, q, k.size(1));
    at::Tensor scores = scores_of(spread(part.of(q), heads), wide_k, mask, part, scale);
    scores = scores.masked_fill(unseen, -std::numeric_limits<float>::infinity());
    const at::Tensor sums = at::logsumexp(scores, -1);
    const at::Tensor probabilities = at::exp(scores - sums.unsqueeze(-1)).masked_fill(unseen, 0);
    part.of(out).copy_(at::matmul(probabilities, wide_v).transpose(1, 2));
    lse.narrow(2, part.first, part.count).copy_(sums);
  });
  return {out, lse};
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const OptionalTensor& dbias) {
  const std::int64_t heads = q.size(2), keys = k.size(1), kv_heads = k.size(2);
  const at::Tensor wide_k = spread(k, heads), wide_v = spread(v, heads);
  const at::Tensor sum_k = at::zeros_like(wide_k), sum_v = at::zeros_like(wide_v);
  if (dbias) dbias->zero_();
  for_parts(q, k, [&](const Part& part) {
    const at::Tensor unseen = unseen_by(mask, part, q, keys);
    const at::Tensor wide_q = spread(part.of(q), heads), gradient = spread(part.of(dout), heads);
    const at::Tensor scores = scores_of(wide_q, wide_k, mask, part, scale);
    const at::Tensor sums = lse.narrow(2, part.first, part.count).unsqueeze(-1);
    const at::Tensor probabilities = at::exp(scores - sums).masked_fill(unseen, 0);
    sum_v.add_(at::matmul(probabilities.transpose(-1, -2), gradient));
    const at::Tensor delta = (gradient * spread(part.of(out), heads)).sum(-1, true);
    at::Tensor dscores = probabilities * (at::matmul(gradient, wide_v.transpose(-1, -2)) - delta);
    if (dbias && dscores.numel() > 0) of_distances(*dbias, part, keys).add_(sum_of_distances(dscores.sum(0)));
    dscores = dscores * scale;
    part.of(dq).copy_(at::matmul(dscores, wide_k).transpose(1, 2));
    sum_k.add_(at::matmul(dscores.transpose(-1, -2), wide_q));
  });
  dk.copy_(gather(sum_k, kv_heads));
  dv.copy_(gather(sum_v, kv_heads));
}

void rope_(const at::Tensor& x, const OptionalTensor& positions, std::int64_t offset, const at::Tensor& waves,
           bool inverse) {
  const std::int64_t rows = x.size(0), length = x.size(1), half = x.size(3) / 2;
  const at::Tensor at_positions = positions
                                      ? waves.index_select(0, positions->reshape({-1})).view({rows, length, 2, half})
                                      : waves.narrow(0, offset, length).unsqueeze(0);
  const at::Tensor c = at_positions.select(2, 0).unsqueeze(2), sine = at_positions.select(2, 1).unsqueeze(2);
  const at::Tensor s = inverse ? -sine : sine;
  const at::Tensor a = x.narrow(3, 0, half).to(at::kFloat), b = x.narrow(3, half, half).to(at::kFloat);
  x.copy_(at::cat({a * c - b * s, b * c + a * s}, 3));
}

}  // namespace plain

at::Tensor rotary_waves(std::int64_t positions, std::int64_t size, double theta, const std::vector<double>& factors) {
  const std::int64_t half = size / 2;
  const auto options = at::TensorOptions().dtype(at::kDouble);
  at::Tensor frequency = at::pow(theta, at::arange(half, options) / static_cast<double>(-half));
  if (!factors.empty()) frequency = frequency * at::tensor(factors, options);
  const at::Tensor angle = at::arange(positions, options).unsqueeze(1) * frequency;
  return at::stack({angle.cos(), angle.sin()}, 1).to(at::kFloat);
}

}  // namespace argosy::kernels
