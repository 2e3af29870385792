#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

/// Decoding step by step: attention of one new position for each row, over keys and values that stay where they were
/// written, and the choice of the most probable ids.
namespace argosy::kernels {

using OptionalTensor = std::optional<at::Tensor>;

/// The keys and values of rows that have positions of different number and may share some of them.
struct CachedKeys {
  at::Tensor pool;     // [P, 2K, D]: the keys of a place, then its values
  at::Tensor places;   // int64 [rows, most]: position i of row r is at places[r, i] of the pool
  at::Tensor lengths;  // int64 [rows]: positions of each row, at least 1
};

/// q: [rows, H, D] view, H a multiple of K. added: [rows, 2K, D] view, which is first written to the last place of each
/// row: no other row has that place. Both have contiguous last two dimensions. window > 0: only the last `window`
/// positions are seen. bias: fp32 [H, most], whose last element is added to the score of the last position of a row,
/// and so on. Returns [rows, H, D].
[[nodiscard]] at::Tensor attention_step(const at::Tensor& q, const OptionalTensor& added, const CachedKeys& keys,
                                        std::int64_t window, double scale, const OptionalTensor& bias = std::nullopt);

/// For each row of logits [rows, V] fp32: the `count` most probable of the first `live` ids, best first; of equal ones
/// the lower id is first. Returns their log-probabilities [rows, count] fp32 and the ids int64. The softmax is over the
/// live ids; -inf excludes one. If there are fewer than `count`, the last ones are id 0 with -inf. A row with NaN or
/// +inf gives NaN.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> top_log_probabilities(const at::Tensor& logits, std::int64_t live,
                                                                       std::int64_t count);

namespace plain {
decltype(kernels::attention_step) attention_step;
decltype(kernels::top_log_probabilities) top_log_probabilities;
}  // namespace plain

}  // namespace argosy::kernels
