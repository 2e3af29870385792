#include "partition/layout.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace argosy::partition {

Layout::Layout(std::vector<int> node_sizes) : node_sizes_(std::move(node_sizes)) {
  ARGOSY_CHECK(!node_sizes_.empty(), "a layout needs a node");
  for (const int size : node_sizes_) {
    ARGOSY_CHECK(size >= 1, "a node of {} ranks", size);
    first_rank_.push_back(world_);
    world_ += size;
    slots_ = std::max(slots_, size);
  }
}

int Layout::canonical_rank(int node, int local_rank) const {
  ARGOSY_CHECK(local_rank >= 0 && local_rank < node_size(node), "local rank {} of {}", local_rank, node_size(node));
  return first_rank_[static_cast<std::size_t>(node)] + local_rank;
}

int Layout::node_of(int canonical_rank) const {
  ARGOSY_CHECK(canonical_rank >= 0 && canonical_rank < world_, "rank {} of {}", canonical_rank, world_);
  return static_cast<int>(std::upper_bound(first_rank_.begin(), first_rank_.end(), canonical_rank) -
                          first_rank_.begin()) -
         1;
}

int Layout::local_rank_of(int canonical_rank) const {
  return canonical_rank - first_rank_[static_cast<std::size_t>(node_of(canonical_rank))];
}

int Layout::slot_owner(int node, int slot) const { return slot * node_size(node) / slots_; }

std::vector<int> Layout::slots_of(int canonical_rank) const {
  const int node = node_of(canonical_rank), local_rank = local_rank_of(canonical_rank);
  std::vector<int> slots;
  for (int slot = 0; slot < slots_; ++slot) {
    if (slot_owner(node, slot) == local_rank) slots.push_back(slot);
  }
  return slots;
}

}  // namespace argosy::partition
