#include "comm/topology.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "comm/session.hpp"
#include "core/error.hpp"

namespace argosy::comm {
namespace {

/// By world rank: the lowest world rank of its node.
std::vector<int> node_leaders(const Communicator& world, const std::optional<std::string>& node_name) {
  std::vector<int> leaders;
  if (any_of(world, node_name.has_value())) {
    std::map<std::string, int> first;
    int rank = 0;
    for (const std::string& name : world.all_gather(node_name.value_or("")))
      leaders.push_back(first.try_emplace(name, rank++).first->second);
    return leaders;
  }
  const auto node = world.impl().split_by_memory();
  const std::vector<std::int64_t> lowest =
      world.all_gather(std::int64_t{*std::min_element(node->world_ranks.begin(), node->world_ranks.end())});
  leaders.assign(lowest.begin(), lowest.end());
  return leaders;
}

}  // namespace

Topology Topology::discover(const Communicator& world, std::optional<std::string> node_name) {
  if (const char* name = std::getenv("ARGOSY_NODE_NAME"); name != nullptr && !node_name) node_name = name;
  return of(world, node_leaders(world, node_name));
}

std::optional<Topology> Topology::part(std::span<const int> members, const std::string& name) const {
  const bool mine = std::ranges::binary_search(members, canonical_rank_);
  auto made = canonical_comm_->impl().split(mine ? 0 : -1, canonical_rank_);
  if (!made) return std::nullopt;
  made->name(" of " + name);
  std::vector<int> leaders;
  std::map<int, int> first;  // by node
  for (const int member : members)
    leaders.push_back(first.try_emplace(layout_.node_of(member), narrow<int>(leaders.size())).first->second);
  return of(Communicator(std::move(made)), leaders);
}

Topology Topology::of(const Communicator& world, const std::vector<int>& leaders) {
  // Sorted by (leader, world rank), ranks stand in canonical order.
  std::vector<int> order(leaders.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return leaders[static_cast<std::size_t>(a)] < leaders[static_cast<std::size_t>(b)];
  });
  std::map<int, int> sizes;
  for (const int leader : leaders) ++sizes[leader];
  std::vector<int> node_sizes;
  node_sizes.reserve(sizes.size());
  for (const auto& [leader, size] : sizes) node_sizes.push_back(size);

  Topology topology;
  topology.layout_ = partition::Layout{node_sizes};
  topology.canonical_rank_ = static_cast<int>(std::find(order.begin(), order.end(), world.rank()) - order.begin());
  topology.node_ = topology.layout_.node_of(topology.canonical_rank_);
  topology.local_rank_ = topology.layout_.local_rank_of(topology.canonical_rank_);
  topology.node_comm_ = std::make_unique<Communicator>(world.split(topology.node_, topology.local_rank_));
  topology.canonical_comm_ = std::make_unique<Communicator>(world.split(0, topology.canonical_rank_));

  const partition::Layout& layout = topology.layout_;
  const std::vector<int> owned = layout.slots_of(topology.canonical_rank_);
  const bool even = layout.world() == layout.nodes() * layout.slots();
  if (even) {
    topology.slot_comms_.push_back(world.split(owned.front(), topology.node_));
  } else {
    for (int slot = 0; slot < layout.slots(); ++slot) {
      const bool mine = std::binary_search(owned.begin(), owned.end(), slot);
      if (auto made = world.impl().split(mine ? slot : -1, topology.node_)) {
        topology.slot_comms_.emplace_back(std::move(made));
      }
    }
  }
  return topology;
}

}  // namespace argosy::comm
