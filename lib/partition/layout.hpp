#pragma once

#include <vector>

/// How many ranks each node has: the part of a topology that needs no MPI. All code that decides which rank owns what
/// takes a Layout.
namespace argosy::partition {

class Layout {
 public:
  Layout() : Layout(std::vector<int>{1}) {}
  /// Ranks per node, by node index; all ≥ 1.
  explicit Layout(std::vector<int> node_sizes);
  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(node_sizes_.size()); }
  [[nodiscard]] int node_size(int node) const { return node_sizes_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const std::vector<int>& node_sizes() const noexcept { return node_sizes_; }
  [[nodiscard]] int world() const noexcept { return world_; }
  /// S: ranks of the largest node.
  [[nodiscard]] int slots() const noexcept { return slots_; }
  [[nodiscard]] int canonical_rank(int node, int local_rank) const;
  [[nodiscard]] int node_of(int canonical_rank) const;
  [[nodiscard]] int local_rank_of(int canonical_rank) const;
  /// The local rank in `node` that owns `slot`: floor(slot·G_n/S).
  [[nodiscard]] int slot_owner(int node, int slot) const;
  /// Slots owned by a canonical rank, ascending.
  [[nodiscard]] std::vector<int> slots_of(int canonical_rank) const;
  bool operator==(const Layout&) const = default;

 private:
  std::vector<int> node_sizes_, first_rank_;
  int world_ = 0, slots_ = 0;
};

}  // namespace argosy::partition
