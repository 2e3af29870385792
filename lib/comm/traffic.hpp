#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "partition/flat_space.hpp"

/// Payload that one rank sends: as backends count it, and by formula. Backends count what they pass to the network; the
/// planner and tests use the formulas. Message envelopes and control traffic are not payload.
namespace argosy::comm {

/// Which of the two levels an operation covers. Ranks exchange slots inside a node and sub-slices of a slot across
/// nodes.
enum class Levels { both, inner, outer };

/// Payload sent by this rank, by operation ("reduce_scatter", "all_gather", "scalar"): inside the node and across
/// nodes.
struct Traffic {
  struct Bytes {
    std::int64_t inner = 0, outer = 0, calls = 0;
    auto operator<=>(const Bytes&) const = default;
    Bytes& operator+=(const Bytes& other);
    /// Without the bytes of the other level.
    [[nodiscard]] Bytes of(Levels levels) const;
  };
  std::map<std::string, Bytes> by_operation;
};

/// What a canonical rank sends in one two-level reduce-scatter; element sizes are those sent, in bytes.
/// In an even layout each of p ranks sends (p-1)/p of the unit, and (N-1)/N of it leaves each of N nodes.
[[nodiscard]] Traffic::Bytes reduce_scatter_bytes(const partition::FlatSpace& space, int canonical_rank,
                                                  std::int64_t inner_element_bytes, std::int64_t outer_element_bytes);
/// The same for one two-level all-gather.
[[nodiscard]] Traffic::Bytes all_gather_bytes(const partition::FlatSpace& space, int canonical_rank,
                                              std::int64_t element_bytes);
/// The same for one elastic reduce-scatter, where every rank sends every owner its slices in fp32.
[[nodiscard]] Traffic::Bytes elastic_bytes(const partition::FlatSpace& space, int canonical_rank);
/// The same for a sum of `size_bytes` over all ranks: rank 0 receives every rank's values and sends the sums to all.
/// Bytes that another rank forwards are not counted.
[[nodiscard]] Traffic::Bytes scalar_bytes(const partition::Layout& layout, int canonical_rank, std::int64_t size_bytes);

}  // namespace argosy::comm
