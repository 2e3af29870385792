#pragma once

#include <optional>

#include "kernels/attention.hpp"

/// What attention.cpp asks of LibTorch's flash attention. For tests.
namespace argosy::kernels::cuda {

/// Whether flash attention computes it; otherwise the plain reference does.
[[nodiscard]] bool is_flash(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask);

/// The rows of a call, one after the other, as sequences that do not see each other: int32 [n + 1], where each begins.
struct Sequences {
  at::Tensor queries, keys;
  std::int64_t longest_query, longest_key;
};

/// None: each row is one sequence. For calls with is_flash.
[[nodiscard]] std::optional<Sequences> sequences_of(const at::Tensor& q, const at::Tensor& k,
                                                    const AttentionMask& mask);

}  // namespace argosy::kernels::cuda
