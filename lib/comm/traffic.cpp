#include "comm/traffic.hpp"

namespace argosy::comm {

Traffic::Bytes reduce_scatter_bytes(const partition::FlatSpace& space, int canonical_rank,
                                    std::int64_t inner_element_bytes, std::int64_t outer_element_bytes) {
  const partition::Layout& layout = space.layout();
  const std::int64_t slot_size = space.slice_size() * layout.nodes();
  const auto owned = static_cast<std::int64_t>(layout.slots_of(canonical_rank).size());
  return {.inner = (layout.slots() - owned) * slot_size * inner_element_bytes,
          .outer = owned * (layout.nodes() - 1) * space.slice_size() * outer_element_bytes,
          .calls = 1};
}

Traffic::Bytes all_gather_bytes(const partition::FlatSpace& space, int canonical_rank, std::int64_t element_bytes) {
  const partition::Layout& layout = space.layout();
  const std::int64_t slot_size = space.slice_size() * layout.nodes();
  const auto owned = static_cast<std::int64_t>(layout.slots_of(canonical_rank).size());
  return {.inner = owned * slot_size * (layout.node_size(layout.node_of(canonical_rank)) - 1) * element_bytes,
          .outer = owned * (layout.nodes() - 1) * space.slice_size() * element_bytes,
          .calls = 1};
}

Traffic::Bytes scalar_bytes(const partition::Layout& layout, int canonical_rank, std::int64_t size_bytes) {
  const int here = layout.node_size(layout.node_of(canonical_rank));
  return {.inner = (here - 1) * size_bytes, .outer = (layout.world() - here) * size_bytes, .calls = 1};
}

}  // namespace argosy::comm
