#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/bytes.hpp"
#include "partition/flat_space.hpp"

/// The flat reference of the exact reduction: every rank's contribution is a function of its canonical rank, so each
/// rank forms the whole nested sum alone, in plain loops.
namespace argosy::comm::test {

/// Contribution of a canonical rank: [elements] values of wildly different sizes, so that another order shows in the
/// bits.
inline std::vector<float> contribution(int canonical_rank, std::int64_t elements) {
  std::minstd_rand random{static_cast<unsigned>(1 + canonical_rank)};
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    value = (static_cast<float>(bits & 0xffffffU) - 8388607.5F) * static_cast<float>(1U << (bits >> 27));
  }
  return values;
}

inline float rounded(float value) { return f32_from_bf16(bf16_from_f32(value)); }

/// What a wrong implementation would do.
enum class Variant { right, nodes_first, own_not_rounded };

/// Sum over nodes 0, 1, … of the sums over their local ranks 0, 1, …; contributions rounded to bf16 at the levels
/// asked.
inline std::vector<float> nested_sum(const partition::FlatSpace& space, bool round_inner, bool round_outer,
                                     Variant variant = Variant::right) {
  const partition::Layout& layout = space.layout();
  const std::int64_t n = space.padded_size();
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < layout.world(); ++rank) values.push_back(contribution(rank, n));
  std::vector<float> sum(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const int owner = space.owner(static_cast<int>(i / space.slice_size()));
    const int slot = static_cast<int>(i / space.slice_size()) / layout.nodes();
    const auto term = [&](int node, int local) {
      const int rank = layout.canonical_rank(node, local);
      const bool own = local == layout.slot_owner(node, slot);
      const float value = values[static_cast<std::size_t>(rank)][at];
      return round_inner && !(variant == Variant::own_not_rounded && own) ? rounded(value) : value;
    };
    if (variant == Variant::nodes_first) {  // local ranks outside, nodes inside
      bool first = true;
      for (int local = 0; local < layout.slots(); ++local) {
        for (int node = 0; node < layout.nodes(); ++node) {
          if (local >= layout.node_size(node)) continue;
          sum[at] = first ? term(node, local) : sum[at] + term(node, local);
          first = false;
        }
      }
      continue;
    }
    for (int node = 0; node < layout.nodes(); ++node) {
      float partial = term(node, 0);
      for (int local = 1; local < layout.node_size(node); ++local) partial += term(node, local);
      const bool own = node == layout.node_of(owner);
      if (round_outer && !(variant == Variant::own_not_rounded && own)) partial = rounded(partial);
      sum[at] = node == 0 ? partial : sum[at] + partial;
    }
  }
  return sum;
}

}  // namespace argosy::comm::test
