#include "comm/topology.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "comm/collectives.hpp"
#include "comm/session.hpp"
#include "support/all_reduce_flat.hpp"
#include "support/mpi_test.hpp"

namespace argosy::comm {
namespace {

class TopologyTest : public testing::TestWithParam<argosy::test::Hierarchy> {};

TEST_P(TopologyTest, NodesAreInTheOrderOfTheirLowestRank) {
  const Communicator& world = argosy::test::world();
  const Topology& topology = argosy::test::topology(GetParam());
  std::map<int, int> index;  // the hierarchy's node → in order of appearance
  std::vector<int> sizes, canonical;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto [at, is_new] =
        index.try_emplace(argosy::test::node_of(GetParam(), rank, world.size()), static_cast<int>(sizes.size()));
    if (is_new) sizes.push_back(0);
    ++sizes[static_cast<std::size_t>(at->second)];
  }
  for (int node = 0; node < static_cast<int>(sizes.size()); ++node)
    for (int rank = 0; rank < world.size(); ++rank)
      if (index.at(argosy::test::node_of(GetParam(), rank, world.size())) == node) canonical.push_back(rank);
  EXPECT_EQ(topology.layout(), partition::Layout{sizes});
  EXPECT_EQ(topology.canonical_comm().impl().world_ranks, canonical);
  EXPECT_EQ(canonical[static_cast<std::size_t>(topology.canonical_rank())], world.rank());
  EXPECT_EQ(topology.layout().canonical_rank(topology.node(), topology.local_rank()), topology.canonical_rank());
}

TEST_P(TopologyTest, CommunicatorsHoldTheRanksTheyPromise) {
  const Topology& topology = argosy::test::topology(GetParam());
  const partition::Layout& layout = topology.layout();
  const std::string me = std::to_string(topology.canonical_rank());
  EXPECT_EQ(topology.node_comm().rank(), topology.local_rank());
  EXPECT_EQ(topology.node_comm().size(), layout.node_size(topology.node()));
  const std::vector<std::string> all = topology.canonical_comm().all_gather(me);
  for (std::size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank], std::to_string(rank));
  const std::vector<int> slots = layout.slots_of(topology.canonical_rank());
  ASSERT_EQ(topology.slot_comms().size(), slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {  // every owner walks its slots upwards: nobody waits for ever
    const std::vector<std::string> owners = topology.slot_comms()[i].all_gather(me);
    ASSERT_EQ(static_cast<int>(owners.size()), layout.nodes());
    for (int node = 0; node < layout.nodes(); ++node)
      EXPECT_EQ(owners[static_cast<std::size_t>(node)],
                std::to_string(layout.canonical_rank(node, layout.slot_owner(node, slots[i]))));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TopologyTest, testing::ValuesIn(argosy::test::hierarchies()), argosy::test::by_name);

TEST(Topology, FindsRanksThatShareMemory) {
  // CMakeLists.txt runs this test on nodes that MPICH makes up.
  const char* const made_up = std::getenv("ARGOSY_TEST_HIERARCHY");
  argosy::test::Hierarchy expected = argosy::test::Hierarchy::flat;
  for (const argosy::test::Hierarchy hierarchy : argosy::test::hierarchies())
    if (made_up != nullptr && argosy::test::name_of(hierarchy) == made_up) expected = hierarchy;
  const Topology topology = Topology::discover(argosy::test::world());
  EXPECT_EQ(topology.layout(), argosy::test::topology(expected).layout());
  EXPECT_EQ(topology.canonical_rank(), argosy::test::topology(expected).canonical_rank());
  EXPECT_EQ(topology.node(), argosy::test::topology(expected).node());
  if (made_up == nullptr) {
    EXPECT_EQ(topology.layout().nodes(), 1);
  }
}

TEST(Topology, TheEnvironmentNamesTheNode) {
  setenv("ARGOSY_NODE_NAME", argosy::test::world().rank() == 0 ? "first" : "second", 1);
  const Topology topology = Topology::discover(argosy::test::world());
  unsetenv("ARGOSY_NODE_NAME");
  EXPECT_EQ(topology.layout().nodes(), argosy::test::world().size() > 1 ? 2 : 1);
  EXPECT_EQ(topology.node(), argosy::test::world().rank() == 0 ? 0 : 1);
}

/// Ranks of even and of odd number, as two components of a model that not all ranks train.
TEST(Topology, AGroupOfSomeOfTheRanksSumsByItself) {
  const Communicator& world = argosy::test::world();
  const Communicator members = world.split(world.rank() % 2, world.rank());
  const Topology topology = Topology::discover(members);
  const auto collectives = make_mpi_collectives(topology);
  const Group group{topology.layout(), topology.canonical_rank(), *collectives};
  ASSERT_EQ(group.layout.world(), members.size());

  const partition::FlatSpace space{{{"w", {1601}}}, group.layout};
  std::vector<float> flat(static_cast<std::size_t>(space.padded_size()), static_cast<float>(world.rank() + 1));
  float sum = 0;
  for (int rank = world.rank() % 2; rank < world.size(); rank += 2) sum += static_cast<float>(rank + 1);
  argosy::test::all_reduce_flat(group.collectives, space, group.canonical_rank,
                                {reinterpret_cast<std::byte*>(flat.data()), std::ssize(flat), DType::f32});
  EXPECT_EQ(flat, std::vector<float>(flat.size(), sum));
}

}  // namespace
}  // namespace argosy::comm
