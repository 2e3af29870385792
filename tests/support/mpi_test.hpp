#pragma once

#include <string>
#include <vector>

#include "comm/topology.hpp"

/// What tests on several ranks share: the world that the test main has started, and node layouts that are not there.
namespace argosy::test {

/// All ranks of this test; valid from the test main's start to its end.
[[nodiscard]] const comm::Communicator& world();

/// Ways to spread any number of ranks over nodes.
enum class Hierarchy {
  flat,              // one node
  one_rank_a_node,   // p nodes
  two_nodes,         // the first half, the second half; uneven for odd p
  uneven,            // rank 0 alone, then the others
  three_nodes,       // one rank each, the last holds the others: 1+1+2
  cyclic,            // two nodes in turns: 0, 1, 0, 1
  cyclic_backwards,  // as cyclic with p > 2, in the order 0, 1, 1, 0
};
[[nodiscard]] std::vector<Hierarchy> hierarchies();
[[nodiscard]] std::string name_of(Hierarchy hierarchy);
/// Names tests by their parameter.
inline constexpr auto by_name = [](const auto& test) { return std::string(name_of(test.param)); };

/// The node a world rank lies on.
[[nodiscard]] int node_of(Hierarchy hierarchy, int world_rank, int ranks);

/// **Collective.** The topology of all ranks spread so; made at the first call, kept to the end of the test.
[[nodiscard]] const comm::Topology& topology(Hierarchy hierarchy);
/// Drops them: the test main does before MPI ends.
void forget_topologies();

}  // namespace argosy::test
