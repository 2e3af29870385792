#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "partition/flat_space.hpp"

/// Which ranks share memory, and the communicators that follow from it, made once. Nodes are numbered by their lowest
/// world rank. The canonical rank counts the ranks of earlier nodes, then the local rank, so block and cyclic placement
/// give the same order of sums and the same owners. Nodes may be uneven. `world` below may be a part of all ranks.
namespace argosy::comm {

class Topology {
 public:
  /// **Collective.** Finds nodes by shared memory. Tests override that by `node_name`, or by ARGOSY_NODE_NAME in the
  /// environment: if any rank has a name, ranks of equal names are a node, and ranks without have the empty name.
  static Topology discover(const Communicator& world, std::optional<std::string> node_name = std::nullopt);

  /// Of some of its ranks: canonical ranks, ascending, whose numbers there are their places in `members`. Absent on all
  /// other ranks. Errors of its operations say " of <name>". **Collective** over this topology.
  [[nodiscard]] std::optional<Topology> part(std::span<const int> members, const std::string& name) const;

  [[nodiscard]] const partition::Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] int world_size() const noexcept { return layout_.world(); }
  [[nodiscard]] int canonical_rank() const noexcept { return canonical_rank_; }
  [[nodiscard]] int node() const noexcept { return node_; }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  /// Ranks of this node, by local rank.
  [[nodiscard]] const Communicator& node_comm() const noexcept { return *node_comm_; }
  /// For each slot this rank owns (ascending): the owners of that slot, one a node, by node index.
  [[nodiscard]] const std::vector<Communicator>& slot_comms() const noexcept { return slot_comms_; }
  /// All ranks by canonical rank; a communicator of its own, for data.
  [[nodiscard]] const Communicator& canonical_comm() const noexcept { return *canonical_comm_; }

 private:
  /// leaders: by rank of `world`, the lowest rank of its node. **Collective.**
  static Topology of(const Communicator& world, const std::vector<int>& leaders);

  partition::Layout layout_;
  int canonical_rank_ = 0, node_ = 0, local_rank_ = 0;
  std::unique_ptr<Communicator> node_comm_, canonical_comm_;
  std::vector<Communicator> slot_comms_;
};

}  // namespace argosy::comm
