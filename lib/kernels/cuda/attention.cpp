// Attention on a GPU by LibTorch's flash attention, which keeps nothing of size T·S (arXiv:2307.08691), and by the
// plain reference, some queries at a time, for what that does not have: fp32, biases, prompts, and heads of other
// sizes.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

#include "core/error.hpp"
#include "kernels/cuda/flash.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cuda {

namespace {

/// As int32, with the end of the last one.
at::Tensor with_end(const at::Tensor& begins, std::int64_t end) {
  return at::cat({begins, at::full({1}, end, begins.options())}).to(at::kInt);
}

Documents find_documents(const at::Tensor& segments) {
  const at::Tensor begins = at::ones_like(segments, segments.options().dtype(at::kBool));
  const std::int64_t length = segments.size(1);
  begins.narrow(1, 1, length - 1).copy_(segments.narrow(1, 1, length - 1).ne(segments.narrow(1, 0, length - 1)));
  return {with_end(begins.view({-1}).nonzero().view({-1}), segments.numel()), length};
}

/// Each row with the keys that it sees, and then no query with the others: their gradients are zero.
Sequences seen_and_other(const at::Tensor& key_lengths, std::int64_t queries, std::int64_t keys) {
  const std::int64_t rows = key_lengths.size(0);
  const at::Tensor row = at::arange(rows, key_lengths.options());
  const at::Tensor key_begins = row * keys, query_begins = row * queries;
  return {with_end(at::stack({query_begins, query_begins + queries}, 1).view({-1}), rows * queries),
          with_end(at::stack({key_begins, key_begins + key_lengths}, 1).view({-1}), rows * keys), queries, keys};
}

/// LibTorch's flash attention adds gradients of queries in one order only if this is set.
class InOneOrder {
 public:
  InOneOrder() { set(true, false); }
  ~InOneOrder() { set(before_, only_warned_); }
  InOneOrder(const InOneOrder&) = delete;
  InOneOrder& operator=(const InOneOrder&) = delete;

 private:
  static void set(bool wanted, bool only_warn) { at::globalContext().setDeterministicAlgorithms(wanted, only_warn); }
  bool before_ = at::globalContext().deterministicAlgorithms();
  bool only_warned_ = at::globalContext().deterministicAlgorithmsWarnOnly();
};

/// The window of LibTorch's operators: keys before and after the query's own. -1: all.
struct Window {
  std::int64_t before = -1, after = -1;
  explicit Window(const AttentionMask& mask) {
    if (mask.window > 0) before = mask.window - 1, after = 0;
  }
};

}  // namespace

bool is_flash(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  constexpr std::int64_t most_size = 256;
  const bool causal = mask.causal || mask.window > 0;
  return q.scalar_type() == at::kBFloat16 && q.size(3) % 8 == 0 && q.size(3) <= most_size && q.numel() > 0 &&
         k.numel() > 0 && !mask.bias && !mask.prompts && (!mask.key_lengths || (!causal && !mask.segments)) &&
         (!mask.segments || (causal && q.size(1) == k.size(1)));
}

std::optional<Sequences> sequences_of(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  if (mask.key_lengths) return seen_and_other(*mask.key_lengths, q.size(1), k.size(1));
  if (!mask.segments) return std::nullopt;
  const Documents documents = mask.documents ? *mask.documents : find_documents(*mask.segments);
  return Sequences{documents.begins, documents.begins, documents.longest, documents.longest};
}

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  if (!is_flash(q, k, mask)) return plain::attention(q, k, v, mask, scale);
  const std::optional<Sequences> cut = sequences_of(q, k, mask);
  const auto rows = [&](const at::Tensor& x) { return cut ? x.flatten(0, 1) : x; };
  const Window window(mask);
  const auto result = at::_flash_attention_forward(
      rows(q), rows(k), rows(v), cut ? OptionalTensor(cut->queries) : std::nullopt,
      cut ? OptionalTensor(cut->keys) : std::nullopt, cut ? cut->longest_query : q.size(1),
      cut ? cut->longest_key : k.size(1), /*dropout_p=*/0, mask.causal || mask.window > 0, /*return_debug_mask=*/false,
      std::optional<double>(scale), std::optional(window.before), std::optional(window.after));
  return {std::get<0>(result).view(q.sizes()), std::get<1>(result)};
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const OptionalTensor& dbias) {
  if (!is_flash(q, k, mask)) return plain::attention_backward(dout, q, k, v, out, lse, mask, scale, dq, dk, dv, dbias);
  const std::optional<Sequences> cut = sequences_of(q, k, mask);
  const auto rows = [&](const at::Tensor& x) { return cut ? x.flatten(0, 1) : x; };
  const Window window(mask);
  const InOneOrder in_one_order;
  const auto [dquery, dkey, dvalue] = at::_flash_attention_backward(
      rows(dout.contiguous()), rows(q), rows(k), rows(v), rows(out), lse, cut ? cut->queries : at::Tensor(),
      cut ? cut->keys : at::Tensor(), cut ? cut->longest_query : q.size(1), cut ? cut->longest_key : k.size(1),
      /*dropout_p=*/0, mask.causal || mask.window > 0, /*rng_state=*/at::Tensor(), /*unused=*/at::Tensor(),
      std::optional<double>(scale), std::optional(window.before), std::optional(window.after));
  dq.copy_(dquery.view(dq.sizes()));
  dk.copy_(dkey.view(dk.sizes()));
  dv.copy_(dvalue.view(dv.sizes()));
}

}  // namespace argosy::kernels::cuda
