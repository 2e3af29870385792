#include "support/mpi_test.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace argosy::test {
namespace {

std::map<Hierarchy, comm::Topology> topologies;  // making communicators is the slow part of many tests

}  // namespace

std::vector<Hierarchy> hierarchies() {
  using enum Hierarchy;
  return {flat, one_rank_a_node, two_nodes, uneven, three_nodes, cyclic, cyclic_backwards};
}

std::string name_of(Hierarchy hierarchy) {
  constexpr const char* names[] = {"flat",        "one_rank_a_node", "two_nodes",       "uneven",
                                   "three_nodes", "cyclic",          "cyclic_backwards"};
  return names[static_cast<std::size_t>(hierarchy)];
}

int node_of(Hierarchy hierarchy, int world_rank, int ranks) {
  switch (hierarchy) {
    case Hierarchy::flat:
      return 0;
    case Hierarchy::one_rank_a_node:
      return world_rank;
    case Hierarchy::two_nodes:
      return world_rank >= (ranks + 1) / 2 ? 1 : 0;
    case Hierarchy::uneven:
      return world_rank == 0 ? 0 : 1;
    case Hierarchy::three_nodes:
      return std::min(world_rank, 2);
    case Hierarchy::cyclic:
      return world_rank % 2;
    case Hierarchy::cyclic_backwards:
      return (world_rank + 1) / 2 % 2;
  }
  throw std::logic_error("no such hierarchy");
}

const comm::Topology& topology(Hierarchy hierarchy) {
  auto found = topologies.find(hierarchy);
  if (found == topologies.end()) {
    const std::string node = fmt::format("n{}", node_of(hierarchy, world().rank(), world().size()));
    found = topologies.emplace(hierarchy, comm::Topology::discover(world(), node)).first;
  }
  return found->second;
}

void forget_topologies() { topologies.clear(); }

}  // namespace argosy::test
