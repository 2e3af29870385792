#include "comm/traffic.hpp"

namespace argosy::comm {
namespace {

/// As space.owned_size(), without a look at every slice.
std::int64_t owned_elements(const partition::FlatSpace& space, int canonical_rank) {
  return std::ssize(space.layout().slots_of(canonical_rank)) * space.slice_size();
}

}  // namespace

Traffic::Bytes& Traffic::Bytes::operator+=(const Bytes& other) {
  inner += other.inner;
  outer += other.outer;
  calls += other.calls;
  return *this;
}

Traffic::Bytes Traffic::Bytes::of(Levels levels) const {
  return {.inner = levels == Levels::outer ? 0 : inner, .outer = levels == Levels::inner ? 0 : outer, .calls = calls};
}

Traffic::Bytes reduce_scatter_bytes(const partition::FlatSpace& space, int canonical_rank,
                                    std::int64_t inner_element_bytes, std::int64_t outer_element_bytes) {
  const std::int64_t owned = owned_elements(space, canonical_rank), nodes = space.layout().nodes();
  return {.inner = (space.padded_size() - owned * nodes) * inner_element_bytes,
          .outer = owned * (nodes - 1) * outer_element_bytes,
          .calls = 1};
}

Traffic::Bytes all_gather_bytes(const partition::FlatSpace& space, int canonical_rank, std::int64_t element_bytes) {
  const partition::Layout& layout = space.layout();
  const std::int64_t owned = owned_elements(space, canonical_rank), nodes = layout.nodes();
  return {.inner = owned * nodes * (layout.node_size(layout.node_of(canonical_rank)) - 1) * element_bytes,
          .outer = owned * (nodes - 1) * element_bytes,
          .calls = 1};
}

Traffic::Bytes elastic_bytes(const partition::FlatSpace& space, int canonical_rank) {
  const partition::Layout& layout = space.layout();
  Traffic::Bytes sent{.calls = 1};
  for (int rank = 0; rank < layout.world(); ++rank) {
    if (rank == canonical_rank) continue;
    const bool here = layout.node_of(rank) == layout.node_of(canonical_rank);
    (here ? sent.inner : sent.outer) += space.owned_size(rank) * 4;
  }
  return sent;
}

Traffic::Bytes scalar_bytes(const partition::Layout& layout, int canonical_rank, std::int64_t size_bytes) {
  const int node = layout.node_of(canonical_rank), here = layout.node_size(node);
  if (canonical_rank == 0)
    return {.inner = (here - 1) * size_bytes, .outer = (layout.world() - here) * size_bytes, .calls = 1};
  return {.inner = node == 0 ? size_bytes : 0, .outer = node == 0 ? 0 : size_bytes, .calls = 1};
}

}  // namespace argosy::comm
