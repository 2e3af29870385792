#include "kernels/attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

namespace argosy::kernels {

namespace plain {
namespace {

/// bool [rows, 1, T, S]: who does not see whom.
at::Tensor unseen_by(const AttentionMask& mask, const at::Tensor& q, std::int64_t keys) {
  const std::int64_t rows = q.size(0), queries = q.size(1);
  const auto index = at::TensorOptions().dtype(at::kLong).device(q.device());
  const at::Tensor key = at::arange(keys, index).view({1, 1, 1, keys});
  const at::Tensor query = at::arange(keys - queries, keys, index).view({1, 1, queries, 1});
  at::Tensor seen = at::ones({rows, 1, queries, keys}, index.dtype(at::kBool)), past = key.le(query);
  if (mask.prompts) past = past.logical_or(key.lt(mask.prompts->view({rows, 1, queries, 1})));
  if (mask.causal || mask.window > 0) seen = seen.logical_and(past);
  if (mask.window > 0) seen = seen.logical_and((query - key).abs().lt(mask.window));
  if (mask.key_lengths) seen = seen.logical_and(key.lt(mask.key_lengths->view({rows, 1, 1, 1})));
  if (mask.segments)
    seen = seen.logical_and(mask.segments->view({rows, 1, queries, 1}).eq(mask.segments->view({rows, 1, 1, keys})));
  return seen.logical_not();
}

/// The bias's elements for scores [rows, H, T, S]: [T·S].
at::Tensor columns(const at::Tensor& scores) {
  const std::int64_t queries = scores.size(2), keys = scores.size(3);
  const auto index = at::TensorOptions().dtype(at::kLong).device(scores.device());
  return (at::arange(keys, index) + (queries - 1) - at::arange(queries, index).unsqueeze(1)).reshape({-1});
}

/// [rows, S, K, D] → [rows, H, S, D] fp32, each head repeated for its group.
at::Tensor spread(const at::Tensor& x, std::int64_t heads) {
  return x.to(at::kFloat).repeat_interleave(heads / x.size(2), 2).transpose(1, 2);
}

/// q·k·scale + bias: [rows, H, T, S]
at::Tensor scores_of(const at::Tensor& wide_q, const at::Tensor& wide_k, const AttentionMask& mask, double scale) {
  const at::Tensor scores = at::matmul(wide_q, wide_k.transpose(-1, -2)) * scale;
  return mask.bias ? scores + mask.bias->index_select(1, columns(scores)).view(scores.sizes().slice(1)) : scores;
}

at::Tensor gather(const at::Tensor& x, std::int64_t kv_heads) {  // the reverse: sums groups
  const auto t = x.transpose(1, 2);
  return t.reshape({t.size(0), t.size(1), kv_heads, t.size(2) / kv_heads, t.size(3)}).sum(3);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  const std::int64_t heads = q.size(2);
  const at::Tensor unseen = unseen_by(mask, q, k.size(1));
  at::Tensor scores = scores_of(spread(q, heads), spread(k, heads), mask, scale);
  scores = scores.masked_fill(unseen, -std::numeric_limits<float>::infinity());
  const at::Tensor lse = at::logsumexp(scores, -1);
  const at::Tensor probabilities = at::exp(scores - lse.unsqueeze(-1)).masked_fill(unseen, 0);
  at::Tensor out = at::matmul(probabilities, spread(v, heads)).transpose(1, 2).to(q.scalar_type()).contiguous();
  return {out, lse};
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const OptionalTensor& dbias) {
  const std::int64_t heads = q.size(2), kv_heads = k.size(2);
  const at::Tensor unseen = unseen_by(mask, q, k.size(1));
  const at::Tensor wide_q = spread(q, heads), wide_k = spread(k, heads), gradient = spread(dout, heads);
  const at::Tensor scores = scores_of(wide_q, wide_k, mask, scale);
  const at::Tensor probabilities = at::exp(scores - lse.unsqueeze(-1)).masked_fill(unseen, 0);
  dv.copy_(gather(at::matmul(probabilities.transpose(-1, -2), gradient), kv_heads));
  const at::Tensor delta = (gradient * spread(out, heads)).sum(-1, true);
  at::Tensor dscores = probabilities * (at::matmul(gradient, spread(v, heads).transpose(-1, -2)) - delta);
  if (dbias) dbias->zero_().index_add_(1, columns(dscores), dscores.sum(0).flatten(1));
  dscores = dscores * scale;
  dq.copy_(at::matmul(dscores, wide_k).transpose(1, 2));
  dk.copy_(gather(at::matmul(dscores.transpose(-1, -2), wide_q), kv_heads));
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
