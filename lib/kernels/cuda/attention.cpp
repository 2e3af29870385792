// Attention on a GPU by LibTorch's flash attention, which keeps nothing of size T·S (arXiv:2307.08691), and by the
// plain reference, some queries at a time, for what that does not have: fp32, biases, prompts, and heads of other
// sizes.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_cudnn_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "core/error.hpp"
#include "kernels/cuda/entries.hpp"
#include "kernels/cuda/flash.hpp"
#include "kernels/device_table.hpp"
#include "kernels/plugin.hpp"
#include "spec/gpu_attention.hpp"

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

bool is_causal(const AttentionMask& mask) { return mask.causal || mask.window > 0; }

GpuTraits traits_of(c10::Device device) {
  static const auto ask = reinterpret_cast<CudaTraits>(plugin_entry(cuda_traits_name));
  GpuTraits traits{};
  if (const int code = ask(device.index(), &traits); code != 0)
    throw_error(Fault::device, cuda_traits_name, "the GPU's properties", "CUDA error " + std::to_string(code));
  return traits;
}

/// cuDNN computes long rows faster than flash attention from Hopper on. It prepares itself for each shape anew, so
/// short rows, which come in many lengths, are not given to it.
bool is_for_cudnn(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  constexpr std::int64_t least_length = 1024, most_size = 128;
  return mask.causal && mask.window == 0 && q.size(1) == k.size(1) && q.size(1) >= least_length &&
         q.size(3) <= most_size && traits_of(q.device()).generation >= 9;
}

std::tuple<at::Tensor, at::Tensor> cudnn_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                   double scale) {
  const auto result = at::_cudnn_attention_forward(
      q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), /*attn_bias=*/std::nullopt, /*cum_seq_q=*/std::nullopt,
      /*cum_seq_k=*/std::nullopt, q.size(1), k.size(1), /*compute_log_sumexp=*/true, /*dropout_p=*/0,
      /*is_causal=*/true, /*return_debug_mask=*/false, std::optional<double>(scale));
  return {std::get<0>(result).transpose(1, 2).contiguous(),
          std::get<1>(result).view({q.size(0), q.size(2), q.size(1)})};
}

}  // namespace

bool is_flash(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  const bool causal = is_causal(mask);
  return q.scalar_type() == at::kBFloat16 && spec::is_flash_head(q.size(3)) && q.numel() > 0 && k.numel() > 0 &&
         !mask.bias && !mask.prompts && (!mask.key_lengths || (!causal && !mask.segments)) &&
         (!mask.segments || (causal && q.size(1) == k.size(1)));
}

std::optional<Sequences> sequences_of(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) {
  if (mask.key_lengths) return seen_and_other(*mask.key_lengths, q.size(1), k.size(1));
  if (!mask.segments) return std::nullopt;
  const Documents documents = mask.documents ? *mask.documents : find_documents(*mask.segments);
  if (documents.begins.numel() == q.size(0) + 1) return std::nullopt;  // one in each row
  return Sequences{documents.begins, documents.begins, documents.longest, documents.longest};
}

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  if (!is_flash(q, k, mask)) return plain::attention(q, k, v, mask, scale);
  const std::optional<Sequences> cut = sequences_of(q, k, mask);
  if (!cut && is_for_cudnn(q, k, mask)) return cudnn_attention(q, k, v, scale);
  const auto rows = [&](const at::Tensor& x) { return cut ? x.flatten(0, 1) : x; };
  const Window window(mask);
  const auto result = at::_flash_attention_forward(
      rows(q), rows(k), rows(v), cut ? OptionalTensor(cut->queries) : std::nullopt,
      cut ? OptionalTensor(cut->keys) : std::nullopt, cut ? cut->longest_query : q.size(1),
      cut ? cut->longest_key : k.size(1), /*dropout_p=*/0, is_causal(mask), /*return_debug_mask=*/false,
      std::optional<double>(scale), std::optional(window.before), std::optional(window.after));
  return {std::get<0>(result).view(q.sizes()), std::get<1>(result)};
}

void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const OptionalTensor& dbias) {
  if (!is_flash(q, k, mask)) return plain::attention_backward(dout, q, k, v, out, lse, mask, scale, dq, dk, dv, dbias);
  const std::optional<Sequences> cut = sequences_of(q, k, mask);
  const std::int64_t heads = q.size(2), kv_heads = k.size(2),
                     added =
                         cut ? 0
                             : spec::flash_parts(q.size(0), heads, traits_of(q.device()).multiprocessors).added_heads;
  const auto rows = [&](const at::Tensor& x) { return cut ? x.flatten(0, 1) : x; };
  // Added heads are zero, and so are their gradients.
  const auto filled = [&](const at::Tensor& x) {
    if (added == 0) return rows(x);
    const at::Tensor wide = at::zeros({x.size(0), x.size(1), heads + added, x.size(3)}, x.options());
    const at::Tensor own = wide.narrow(2, 0, heads).unflatten(2, {x.size(2), heads / x.size(2)});
    own.copy_(x.unsqueeze(3).expand(own.sizes()));
    return wide;
  };
  const at::Tensor sums = added == 0 ? lse : at::constant_pad_nd(lse, {0, 0, 0, added});
  const Window window(mask);
  const InOneOrder in_one_order;
  const auto [dquery, dkey, dvalue] = at::_flash_attention_backward(
      filled(dout), filled(q), filled(k), filled(v), filled(out), sums, cut ? cut->queries : at::Tensor(),
      cut ? cut->keys : at::Tensor(), cut ? cut->longest_query : q.size(1), cut ? cut->longest_key : k.size(1),
      /*dropout_p=*/0, is_causal(mask), /*rng_state=*/at::Tensor(), /*unused=*/at::Tensor(),
      std::optional<double>(scale), std::optional(window.before), std::optional(window.after));
  const auto give = [&](const at::Tensor& to, const at::Tensor& x) {
    if (added == 0) {
      to.copy_(x.view(to.sizes()));
    } else {
      const at::Tensor own = x.narrow(2, 0, heads);
      to.copy_(to.size(2) == heads ? own : own.unflatten(2, {kv_heads, heads / kv_heads}).sum(3, false, at::kFloat));
    }
  };
  give(dq, dquery);
  give(dk, dkey);
  give(dv, dvalue);
}

}  // namespace argosy::kernels::cuda
