// Attention on a GPU by LibTorch's flash attention, which keeps nothing of size T·S (arXiv:2307.08691), and by the
// plain reference, some queries at a time, for what that does not have: fp32, biases, prompts, and heads of other
// sizes.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_cudnn_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <string>

#include "core/error.hpp"
#include "kernels/cuda/entries.hpp"
#include "kernels/cuda/flash.hpp"
#include "kernels/device_table.hpp"
#include "kernels/plugin.hpp"
#include "spec/gpu_attention.hpp"

namespace argosy::kernels::cuda {

namespace {

/// LibTorch's flash attention adds gradients of queries in one order only if this is set. That new memory is filled as
/// well is not wanted.
class InOneOrder {
 public:
  InOneOrder() {
    set(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  ~InOneOrder() {
    set(before_, only_warned_);
    at::globalContext().setDeterministicFillUninitializedMemory(filled_);
  }
  InOneOrder(const InOneOrder&) = delete;
  InOneOrder& operator=(const InOneOrder&) = delete;

 private:
  static void set(bool wanted, bool only_warn) { at::globalContext().setDeterministicAlgorithms(wanted, only_warn); }
  bool before_ = at::globalContext().deterministicAlgorithms();
  bool only_warned_ = at::globalContext().deterministicAlgorithmsWarnOnly();
  bool filled_ = at::globalContext().deterministicFillUninitializedMemory();
};

/// The window of LibTorch's operators: keys before and after the query's own. -1: all.
struct Window {
  std::int64_t before = -1, after = -1;
  explicit Window(const AttentionMask& mask, std::int64_t longest) {
    if (mask.window > 0 && mask.window < longest) before = mask.window - 1, after = 0;
  }
};

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
      const auto first = static_cast<std::int64_t>(run.first), last = static_cast<std::int64_t>(run.last);
      const at::Tensor begins = cut->queries.narrow(0, first, last - first + 1) - begin;
      const std::int64_t most = longest(cut->begins, run);
      part.lse = part.lse.contiguous();
      flash_backward(part, Sequences{begins, begins, most, most}, mask, scale);
    }
  }
}

}  // namespace argosy::kernels::cuda
