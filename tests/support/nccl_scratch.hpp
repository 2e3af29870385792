#pragma once

#include <algorithm>

#include "comm/collectives.hpp"

namespace argosy::comm {

/// Bytes of device memory that exact sums of `space` take on a rank: contributions received at both levels, the node's
/// sums for other nodes, and rounded copies where the type sent is narrower than the buffer's.
inline std::int64_t nccl_scratch_bytes(const partition::FlatSpace& space, int canonical_rank, DType flat,
                                       const CollectivesOptions& options) {
  const partition::Layout& layout = space.layout();
  const std::int64_t nodes = layout.nodes(), here = layout.node_size(layout.node_of(canonical_rank));
  const std::int64_t slices = space.owned_size(canonical_rank), slots = slices * nodes;
  const bool rounds = flat == DType::f32 && layout.slots() > 1 && options.wire_inner == DType::bf16;
  const std::int64_t inner = flat == DType::bf16 || rounds ? 2 : 4,
                     outer = static_cast<std::int64_t>(size_of(options.wire_outer));
  const std::int64_t received = std::max((here - 1) * slots * inner, (nodes - 1) * slices * outer);
  const std::int64_t rounded = rounds ? space.padded_size() * 2 : nodes > 1 && outer == 2 ? slots * 2 : 0;
  return received + (nodes > 1 ? slots * 4 : 0) + rounded;
}

}  // namespace argosy::comm
