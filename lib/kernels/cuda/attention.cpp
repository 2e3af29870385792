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

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

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
  const at::Tensor found = with_end(begins.view({-1}).nonzero().view({-1}), segments.numel()), here = found.cpu();
  const auto* const first = here.const_data_ptr<std::int32_t>();
  return {{first, first + here.numel()}, found};
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
  explicit Window(const AttentionMask& mask, std::int64_t longest) {
    if (mask.window > 0 && mask.window < longest) before = mask.window - 1, after = 0;
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
  return is_causal(mask) && Window(mask, k.size(1)).before < 0 && q.size(1) == k.size(1) && q.size(1) >= least_length &&
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

std::int64_t longest(const std::vector<std::int32_t>& begins, const DocumentRange& run) {
  std::int64_t most = 0;
  for (std::size_t i = run.first; i < run.last; ++i) most = std::max<std::int64_t>(most, begins[i + 1] - begins[i]);
  return most;
}

struct BackwardTensors {
  at::Tensor dout, q, k, v, out, lse, dq, dk, dv;
  [[nodiscard]] std::array<at::Tensor*, 8> rows() { return {&dout, &q, &k, &v, &out, &dq, &dk, &dv}; }
};

/// Of rows [rows, T, heads, D], or of sequences [positions, heads, D].
void flash_backward(const BackwardTensors& of, const std::optional<Sequences>& cut, const AttentionMask& mask,
                    double scale) {
  const std::int64_t heads = of.q.size(-2), kv_heads = of.k.size(-2);
  const std::int64_t added =
      cut ? 0 : spec::flash_parts(of.q.size(0), heads, traits_of(of.q.device()).multiprocessors).added_heads;
  // Added heads are zero, and so are their gradients.
  const auto filled = [&](const at::Tensor& x) {
    if (added == 0) return x;
    const at::Tensor wide = at::zeros({x.size(0), x.size(1), heads + added, x.size(3)}, x.options());
    const at::Tensor own = wide.narrow(2, 0, heads).unflatten(2, {x.size(2), heads / x.size(2)});
    own.copy_(x.unsqueeze(3).expand(own.sizes()));
    return wide;
  };
  const at::Tensor sums = added == 0 ? of.lse : at::constant_pad_nd(of.lse, {0, 0, 0, added});
  const Window window(mask, cut ? cut->longest_key : of.k.size(1));
  const InOneOrder in_one_order;
  const auto [dquery, dkey, dvalue] = at::_flash_attention_backward(
      filled(of.dout.contiguous()), filled(of.q), filled(of.k), filled(of.v), filled(of.out.contiguous()), sums,
      cut ? cut->queries : at::Tensor(), cut ? cut->keys : at::Tensor(), cut ? cut->longest_query : of.q.size(1),
      cut ? cut->longest_key : of.k.size(1), /*dropout_p=*/0, is_causal(mask), /*rng_state=*/at::Tensor(),
      /*unused=*/at::Tensor(), std::optional<double>(scale), std::optional(window.before), std::optional(window.after));
  const auto give = [&](const at::Tensor& to, const at::Tensor& x) {
    if (added == 0) {
      to.copy_(x);
    } else {
      const at::Tensor own = x.narrow(2, 0, heads);
      to.copy_(to.size(2) == heads ? own : own.unflatten(2, {kv_heads, heads / kv_heads}).sum(3, false, at::kFloat));
    }
  };
  give(of.dq, dquery);
  give(of.dk, dkey);
  give(of.dv, dvalue);
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
  Documents documents = mask.documents ? *mask.documents : find_documents(*mask.segments);
  if (std::ssize(documents.begins) == q.size(0) + 1) return std::nullopt;  // one in each row
  const std::int64_t most = longest(documents.begins, {0, documents.begins.size() - 1});
  return Sequences{documents.on_device, documents.on_device, most, most, std::move(documents.begins)};
}

std::vector<DocumentRange> runs_of(const std::vector<std::int32_t>& begins, std::int64_t heads,
                                   std::int64_t multiprocessors) {
  const std::size_t count = begins.size() - 1;
  const auto work_of = [&](std::size_t document) {  // of a head
    const double length = begins[document + 1] - begins[document];
    return length * length;
  };
  std::vector<std::size_t> by_length(count);
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(), [&](auto a, auto b) { return work_of(a) > work_of(b); });
  double rest = 0, alone = 0;
  for (std::size_t document = 0; document < count; ++document) rest += work_of(document);
  const auto together =
      [&](std::size_t from) {  // those from that place on: all multiprocessors, then the longest block
        const std::int64_t units = heads * static_cast<std::int64_t>(count - from);
        if (units == 0) return 0.0;
        const auto parts = static_cast<double>((multiprocessors + units - 1) / units);
        return rest * static_cast<double>(heads) / static_cast<double>(multiprocessors) +
               work_of(by_length[from]) / parts;
      };
  constexpr std::size_t most = 16;
  constexpr double of_a_call = 1e5;  // about 30 microseconds for heads of 128
  const auto [added, parts] = spec::flash_parts(1, heads, multiprocessors);
  const auto waves = static_cast<double>(((heads + added) * parts + multiprocessors - 1) / multiprocessors);
  double least = together(0);
  std::size_t best = 0;
  for (std::size_t n = 1; n <= std::min(count, most); ++n) {
    const double work = work_of(by_length[n - 1]);
    rest -= work;
    alone += work * waves / static_cast<double>(parts) + 2 * of_a_call;  // itself, and what it cuts in two
    if (const double time = alone + together(n); time < least) least = time, best = n;
  }
  std::vector<bool> is_alone(count, false);
  for (std::size_t n = 0; n < best; ++n) is_alone[by_length[n]] = true;
  std::vector<DocumentRange> runs;
  for (std::size_t document = 0; document < count; ++document) {
    if (document == 0 || is_alone[document] || is_alone[document - 1]) runs.push_back({document, document});
    ++runs.back().last;
  }
  return runs;
}

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionMask& mask, double scale) {
  if (!is_flash(q, k, mask)) return plain::attention(q, k, v, mask, scale);
  const std::optional<Sequences> cut = sequences_of(q, k, mask);
  if (!cut && is_for_cudnn(q, k, mask)) return cudnn_attention(q, k, v, scale);
  const auto rows = [&](const at::Tensor& x) { return cut ? x.flatten(0, 1) : x; };
  const Window window(mask, cut ? cut->longest_key : k.size(1));
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
  const BackwardTensors whole{dout, q, k, v, out, lse, dq, dk, dv};
  if (!cut) return flash_backward(whole, std::nullopt, mask, scale);
  BackwardTensors all = whole;
  for (at::Tensor* const x : all.rows()) *x = x->flatten(0, 1);
  if (cut->begins.empty()) return flash_backward(all, cut, mask, scale);
  const std::vector<DocumentRange> runs = runs_of(cut->begins, q.size(2), traits_of(q.device()).multiprocessors);
  for (const DocumentRange& run : runs) {
    const std::int64_t begin = cut->begins[run.first], length = cut->begins[run.last] - begin;
    BackwardTensors part = all;
    for (at::Tensor* const x : part.rows()) *x = x->narrow(0, begin, length);
    part.lse = lse.narrow(1, begin, length);
    if (run.last - run.first == 1) {  // as one row
      for (at::Tensor* const x : part.rows()) *x = x->unsqueeze(0);
      part.lse = part.lse.unsqueeze(0).contiguous();
      flash_backward(part, std::nullopt, mask, scale);
    } else if (runs.size() == 1) {
      flash_backward(part, cut, mask, scale);
    } else {
      const at::Tensor begins = cut->queries.narrow(0, static_cast<std::int64_t>(run.first),
                                                    static_cast<std::int64_t>(run.last - run.first) + 1) -
                                begin;
      const std::int64_t most = longest(cut->begins, run);
      part.lse = part.lse.contiguous();
      flash_backward(part, Sequences{begins, begins, most, most}, mask, scale);
    }
  }
}

}  // namespace argosy::kernels::cuda
