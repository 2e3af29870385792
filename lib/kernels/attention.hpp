#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/documents.hpp"

/// Softmax attention with grouped queries, key lengths, causal mask, prompts, window, packed documents and a bias by
/// distance;
/// and rotary positions, in place. No T×S mask, bias or probability matrix is kept: the backward pass recomputes
/// probabilities from the log-sum-exp, for one block of queries at a time (arXiv:2205.14135).
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

/// Which keys a query attends to (sees), and how far away they seem. If causal, query i of T is at position S - T + i.
struct AttentionMask {
  OptionalTensor key_lengths;  // int64 [rows]: later keys are not seen
  OptionalTensor segments;     // int64 [rows, S]: a query sees only keys of its own document (T = S)
  bool causal = false;
  std::int64_t window = 0;  // > 0: key j is seen iff 0 <= i - j < window
  /// fp32 [H, S + T - 1]: element j - i + T - 1 is added to the score of query i and key j (position_bias.hpp).
  OptionalTensor bias = std::nullopt;
  /// int64 [rows, T], causal and T = S: query i also sees the later keys j < prompts[i], at most window - 1 later. In a
  /// document this is the end of its prompt for the queries of the prompt, and anything up to i + 1 for all others.
  OptionalTensor prompts = std::nullopt;
  /// Says again what `segments` says. Without it, a GPU has to find the documents, for which the host waits.
  std::optional<Documents> documents = std::nullopt;
};

/// q: [rows, T, H, D], k, v: [rows, S, K, D]; views with contiguous last dimension, H a multiple of K.
/// Returns out [rows, T, H, D] and the log-sum-exp [rows, H, T] fp32 (on a GPU as attention_backward wants it). A query
/// that sees no key gives zeros.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k,
                                                           const at::Tensor& v, const AttentionMask& mask,
                                                           double scale);

/// Writes the gradients of q, k and v into dq, dk, dv (views shaped as q, k, v), and that of the mask's bias into dbias
/// (shaped as it, contiguous) if it is given.
void attention_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& out, const at::Tensor& lse, const AttentionMask& mask, double scale,
                        const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                        const OptionalTensor& dbias = std::nullopt);

/// Cosines and sines of position·theta^(-2i/size) for positions 0, 1, …: [positions, 2, size/2] fp32, computed in fp64
/// (arXiv:2104.09864). factors: by which the angles are multiplied (spec::rotary_factors), or empty.
[[nodiscard]] at::Tensor rotary_waves(std::int64_t positions, std::int64_t size, double theta,
                                      const std::vector<double>& factors = {});

/// Rotates pairs (i, i + D/2) of each head by the angle of their position, in place; `inverse` rotates back (for the
/// gradient). x: [rows, T, heads, D] view; positions: int64 [rows, T], absent: offset, offset + 1, …; waves:
/// rotary_waves() of at least as many positions, on the device of x.
void rope_(const at::Tensor& x, const OptionalTensor& positions, std::int64_t offset, const at::Tensor& waves,
           bool inverse);

namespace plain {
/// Both compute for so many queries at a time that their scores take at most spec::score_bytes, or for one.
decltype(kernels::attention) attention;
decltype(kernels::attention_backward) attention_backward;
decltype(kernels::rope_) rope_;
}  // namespace plain

}  // namespace argosy::kernels
