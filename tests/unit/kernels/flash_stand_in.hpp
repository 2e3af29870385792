#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "kernels/attention.hpp"

/// LibTorch has flash attention for GPUs alone. Here its operators compute on a CPU what they say they do, by the
/// reference, and count their calls. Include it once in a program.
namespace argosy::test::flash {

struct Calls {
  int forward = 0, backward = 0, cudnn = 0;
  std::int64_t heads = 0;  // of the last backward call
  bool in_one_order = true;
};
inline Calls calls;

struct Sequence {
  std::int64_t query, queries, key, keys;
};
inline std::vector<Sequence> sequences(const at::Tensor& queries, const at::Tensor& keys) {
  std::vector<Sequence> all;
  for (std::int64_t i = 0; i + 1 < queries.size(0); ++i) {
    const auto at = [i](const at::Tensor& of, int next) { return std::int64_t{of[i + next].item<int>()}; };
    all.push_back({at(queries, 0), at(queries, 1) - at(queries, 0), at(keys, 0), at(keys, 1) - at(keys, 0)});
  }
  return all;
}
inline kernels::AttentionMask mask_of(bool causal, std::optional<std::int64_t> before) {
  return {.key_lengths = {}, .segments = {}, .causal = causal, .window = before.value_or(-1) + 1};
}
inline at::Tensor rows(const at::Tensor& x, std::int64_t begin, std::int64_t count) {
  return x.narrow(0, begin, count).unsqueeze(0);
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& queries,
    const std::optional<at::Tensor>& keys, std::int64_t /*max_q*/, std::int64_t /*max_k*/, double /*dropout_p*/,
    bool causal, bool /*return_debug_mask*/, std::optional<double> scale, std::optional<std::int64_t> before,
    std::optional<std::int64_t> /*after*/, const std::optional<at::Tensor>& /*seqused_k*/,
    const std::optional<at::Tensor>& /*alibi_slopes*/) {
  ++calls.forward;
  if (!queries) {
    const auto [out, lse] = kernels::plain::attention(q, k, v, mask_of(causal, before), *scale);
    return {out, lse, {}, {}, {}};
  }
  const at::Tensor out = at::zeros_like(q, at::MemoryFormat::Contiguous),
                   lse = at::full({q.size(1), q.size(0)}, HUGE_VALF, at::kFloat);
  for (const Sequence& s : sequences(*queries, *keys)) {
    if (s.queries == 0 || s.keys == 0) continue;
    const auto [part, sums] = kernels::plain::attention(rows(q, s.query, s.queries), rows(k, s.key, s.keys),
                                                        rows(v, s.key, s.keys), mask_of(causal, before), *scale);
    out.narrow(0, s.query, s.queries).copy_(part[0]);
    lse.narrow(1, s.query, s.queries).copy_(sums[0]);
  }
  return {out, lse, {}, {}, {}};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
    const at::Tensor& lse, const at::Tensor& queries, const at::Tensor& keys, std::int64_t /*max_q*/,
    std::int64_t /*max_k*/, double /*dropout_p*/, bool causal, const at::Tensor& /*rng_state*/,
    const at::Tensor& /*unused*/, std::optional<double> scale, std::optional<std::int64_t> before,
    std::optional<std::int64_t> /*after*/) {
  ++calls.backward;
  calls.heads = q.size(-2);
  calls.in_one_order = calls.in_one_order && at::globalContext().deterministicAlgorithms();
  TORCH_CHECK(lse.is_contiguous() && out.is_contiguous() && dout.is_contiguous(), "as on a GPU");
  const at::Tensor dq = at::full(q.sizes(), NAN, q.options()), dk = at::full(k.sizes(), NAN, k.options()),
                   dv = at::full(v.sizes(), NAN, v.options());
  const kernels::AttentionMask mask = mask_of(causal, before);
  if (!queries.defined()) {
    kernels::plain::attention_backward(dout, q, k, v, out, lse, mask, *scale, dq, dk, dv);
    return {dq, dk, dv};
  }
  for (const Sequence& s : sequences(queries, keys)) {
    const auto of_q = [&](const at::Tensor& x) { return rows(x, s.query, s.queries); };
    const auto of_k = [&](const at::Tensor& x) { return rows(x, s.key, s.keys); };
    kernels::plain::attention_backward(of_q(dout), of_q(q), of_k(k), of_k(v), of_q(out),
                                       lse.narrow(1, s.query, s.queries).unsqueeze(0), mask, *scale, of_q(dq), of_k(dk),
                                       of_k(dv));
  }
  return {dq, dk, dv};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor,
                  at::Tensor>
cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& /*bias*/,
      const std::optional<at::Tensor>& /*queries*/, const std::optional<at::Tensor>& /*keys*/, c10::SymInt max_q,
      c10::SymInt max_k, bool /*compute_log_sumexp*/, double /*dropout_p*/, bool causal, bool /*return_debug_mask*/,
      std::optional<double> scale) {
  ++calls.cudnn;
  const auto of = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const auto [out, lse] = kernels::plain::attention(of(q), of(k), of(v), mask_of(causal, std::nullopt), *scale);
  return {of(out), lse, {}, {}, max_q, max_k, {}, {}, {}};
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_flash_attention_forward", forward);
  m.impl("_flash_attention_backward", backward);
  m.impl("_cudnn_attention_forward", cudnn);
}

}  // namespace argosy::test::flash
