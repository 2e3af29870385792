#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/attention.hpp"

/// How a call of attention on a GPU is cut for LibTorch's flash attention. For attention.cpp and tests.
namespace argosy::kernels::cuda {

[[nodiscard]] bool is_causal(const AttentionMask& mask);
/// Whether flash attention computes it; otherwise the plain reference does.
[[nodiscard]] bool is_flash(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask);

/// The rows of a call, one after the other, as sequences that do not see each other: int32 [n + 1], where each begins.
struct Sequences {
  at::Tensor queries, keys;
  std::int64_t longest_query, longest_key;
  std::vector<std::int32_t> begins{};  // of documents
};

/// None: each row is one sequence. For calls with is_flash.
[[nodiscard]] std::optional<Sequences> sequences_of(const at::Tensor& q, const at::Tensor& k,
                                                    const AttentionMask& mask);

/// Documents [first, last) of which the backward pass computes the gradients at once.
struct DocumentRange {
  std::size_t first, last;
  bool operator==(const DocumentRange&) const = default;
};
/// Positions of the longest one.
[[nodiscard]] std::int64_t longest(const std::vector<std::int32_t>& begins, const DocumentRange& run);
/// In order. Documents are together, but for long ones, whose blocks would be at work when all others have ended.
[[nodiscard]] std::vector<DocumentRange> runs_of(const std::vector<std::int32_t>& begins, std::int64_t heads,
                                                 std::int64_t multiprocessors);

}  // namespace argosy::kernels::cuda
