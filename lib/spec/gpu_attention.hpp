#pragma once

#include <cstdint>

/// How attention on a GPU is cut into parts, on which its memory depends: for kernels and for the planner. Pure.
namespace argosy::spec {

/// Flash attention (arXiv:2307.08691) has heads of whole multiples of 8, at most so large.
[[nodiscard]] constexpr bool is_flash_head(std::int64_t size) { return size % 8 == 0 && size <= 256; }

/// Where there is no flash attention, so many queries are computed at a time that their scores take at most this.
inline constexpr std::int64_t score_bytes = 64LL << 20;

/// The backward pass of flash attention with gradients that are added in one order. For each sequence and head it
/// starts `parts` blocks, so that there are at least as many blocks as multiprocessors, and each part has sums of its
/// own. A few more blocks than multiprocessors take twice the time, so heads of zeros may be added.
struct FlashParts {
  std::int64_t added_heads = 0, parts = 1;
};
[[nodiscard]] constexpr FlashParts flash_parts(std::int64_t sequences, std::int64_t heads,
                                               std::int64_t multiprocessors) {
  FlashParts best;
  double least = 0;
  for (std::int64_t added = 0; added <= heads / 8; ++added) {
    const std::int64_t units = sequences * (heads + added), parts = (multiprocessors + units - 1) / units;
    const std::int64_t waves = (units * parts + multiprocessors - 1) / multiprocessors;
    const double time = static_cast<double>(waves) / static_cast<double>(parts);
    if (added == 0 || time < least) least = time, best = {added, parts};
  }
  return best;
}

}  // namespace argosy::spec
