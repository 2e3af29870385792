#include "kernels/attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "kernels/cpu/operators.hpp"
#include "kernels/operator.hpp"

namespace argosy::kernels {

namespace plain {
namespace {

struct Mask {
  const OptionalTensor& key_lengths;
  const OptionalTensor& segments;
  bool causal;
  std::int64_t window;

  /// bool [rows, 1, T, S]: who sees whom.
  [[nodiscard]] at::Tensor seen(const at::Tensor& q, std::int64_t keys) const {
    const std::int64_t rows = q.size(0), queries = q.size(1);
    const auto index = at::TensorOptions().dtype(at::kLong).device(q.device());
    const at::Tensor key = at::arange(keys, index).view({1, 1, 1, keys});
    const at::Tensor query = at::arange(keys - queries, keys, index).view({1, 1, queries, 1});
    at::Tensor result = at::ones({rows, 1, queries, keys}, index.dtype(at::kBool));
    if (causal) result = result.logical_and(key.le(query));
    if (window > 0) result = result.logical_and((query - key).lt(window)).logical_and(key.le(query));
    if (key_lengths) result = result.logical_and(key.lt(key_lengths->view({rows, 1, 1, 1})));
    if (segments)
      result = result.logical_and(segments->view({rows, 1, queries, 1}).eq(segments->view({rows, 1, 1, keys})));
    return result;
  }
};

/// [rows, S, K, D] → [rows, H, S, D] fp32, each head repeated for its group.
at::Tensor spread(const at::Tensor& x, std::int64_t heads) {
  return x.to(at::kFloat).repeat_interleave(heads / x.size(2), 2).transpose(1, 2);
}

at::Tensor gather(const at::Tensor& x, std::int64_t kv_heads) {  // the reverse: sums groups
  const auto t = x.transpose(1, 2);
  return t.reshape({t.size(0), t.size(1), kv_heads, t.size(2) / kv_heads, t.size(3)}).sum(3);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const OptionalTensor& key_lengths, const OptionalTensor& segments,
                                             bool causal, std::int64_t window, double scale) {
  const std::int64_t heads = q.size(2);
  const at::Tensor unseen = Mask{key_lengths, segments, causal, window}.seen(q, k.size(1)).logical_not();
  at::Tensor scores = at::matmul(spread(q, heads), spread(k, heads).transpose(-1, -2)) * scale;
  scores = scores.masked_fill(unseen, -std::numeric_limits<float>::infinity());
  const at::Tensor lse = at::logsumexp(scores, -1);
  const at::Tensor probabilities = at::exp(scores - lse.unsqueeze(-1)).masked_fill(unseen, 0);
  at::Tensor out = at::matmul(probabilities, spread(v, heads)).transpose(1, 2).to(q.scalar_type()).contiguous();
  return {out, lse};
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const OptionalTensor& key_lengths,
                        const OptionalTensor& segments, bool causal, std::int64_t window, double scale, at::Tensor& dq,
                        at::Tensor& dk, at::Tensor& dv) {
  const std::int64_t heads = q.size(2), kv_heads = k.size(2);
  const at::Tensor unseen = Mask{key_lengths, segments, causal, window}.seen(q, k.size(1)).logical_not();
  const at::Tensor wide_q = spread(q, heads), wide_k = spread(k, heads), gradient = spread(dout, heads);
  const at::Tensor scores = at::matmul(wide_q, wide_k.transpose(-1, -2)) * scale;
  const at::Tensor probabilities = at::exp(scores - lse.unsqueeze(-1)).masked_fill(unseen, 0);
  dv.copy_(gather(at::matmul(probabilities.transpose(-1, -2), gradient), kv_heads));
  const at::Tensor delta = (gradient * spread(out, heads)).sum(-1, true);
  const at::Tensor dscores = probabilities * (at::matmul(gradient, spread(v, heads).transpose(-1, -2)) - delta) * scale;
  dq.copy_(at::matmul(dscores, wide_k).transpose(1, 2));
  dk.copy_(gather(at::matmul(dscores.transpose(-1, -2), wide_q), kv_heads));
}

void rope_(at::Tensor& x, const OptionalTensor& positions, std::int64_t offset, double theta, bool inverse) {
  const std::int64_t half = x.size(3) / 2;
  const auto options = at::TensorOptions().dtype(at::kDouble).device(x.device());
  const at::Tensor frequency = at::pow(theta, at::arange(half, options) / static_cast<double>(-half));
  const at::Tensor position =
      positions ? positions->to(at::kDouble) : at::arange(offset, offset + x.size(1), options).unsqueeze(0);
  const at::Tensor angle = position.unsqueeze(-1) * frequency;  // [rows or 1, T, half]
  const at::Tensor c = angle.cos().to(at::kFloat).unsqueeze(2);
  const at::Tensor s = (inverse ? -angle.sin() : angle.sin()).to(at::kFloat).unsqueeze(2);
  const at::Tensor a = x.narrow(3, 0, half).to(at::kFloat), b = x.narrow(3, half, half).to(at::kFloat);
  x.copy_(at::cat({a * c - b * s, b * c + a * s}, 3));
}

}  // namespace plain

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  static const auto op = operator_handle<decltype(plain::attention)>("argosy::attention");
  return op.call(q, k, v, mask.key_lengths, mask.segments, mask.causal, mask.window, scale);
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        at::Tensor dq, at::Tensor dk, at::Tensor dv) {
  static const auto op = operator_handle<decltype(plain::attention_backward)>("argosy::attention_backward");
  op.call(dout, q, k, v, out, lse, mask.key_lengths, mask.segments, mask.causal, mask.window, scale, dq, dk, dv);
}

void rope_(at::Tensor x, const OptionalTensor& positions, std::int64_t offset, double theta, bool inverse) {
  static const auto op = operator_handle<decltype(plain::rope_)>("argosy::rope_");
  op.call(x, positions, offset, theta, inverse);
}

TORCH_LIBRARY_FRAGMENT(argosy, library) {
  library.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? key_lengths, Tensor? segments, bool causal, int window, float "
      "scale) -> "
      "(Tensor, Tensor)");
  library.def(
      "attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? key_lengths, "
      "Tensor? segments, bool causal, int window, float scale, Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv) -> ()");
  library.def("rope_(Tensor(a!) x, Tensor? positions, int offset, float theta, bool inverse) -> ()");
  register_versions(library, "attention", plain::attention, cpu::attention);
  register_versions(library, "attention_backward", plain::attention_backward, cpu::attention_backward);
  register_versions(library, "rope_", plain::rope_, cpu::rope_);
}

}  // namespace argosy::kernels
