#include <array>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "mpi/comm/reduction_case.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy, argosy::test::world;
using test::Case, test::Variant, test::Wire;

class ReduceScatter : public testing::TestWithParam<test::HierarchyAndWire> {};

TEST_P(ReduceScatter, EqualsTheNestedSumBitForBitAndCountsThePayloadOfTheFormula) {
  const auto [hierarchy, wire] = GetParam();
  Case c{hierarchy, wire, 70001};  // indivisible: padding is tested; several pieces a slice
  const auto collectives = make_mpi_collectives(c.topology, c.options());
  const auto expected = c.owned_bits(c.exact_sum());
  for (int i = 0; i < 2; ++i) {
    collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    ASSERT_EQ(c.shard_bits(), expected);
  }
  const Traffic::Bytes once = c.bytes_sent();
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"),
            (Traffic::Bytes{.inner = 2 * once.inner, .outer = 2 * once.outer, .calls = 2}));
}

INSTANTIATE_TEST_SUITE_P(All, ReduceScatter,
                         test::every_hierarchy_with({Wire::fp32, Wire::bf16_flat, Wire::bf16_inner, Wire::bf16_outer,
                                                     Wire::bf16_both}),
                         test::text_of);

TEST(ReduceScatterOrder, SummingNodesBeforeLocalRanksWouldShow) {
  Case c{Hierarchy::two_nodes, Wire::fp32, 1601};
  make_mpi_collectives(c.topology)->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  if (world().size() > 2) {
    EXPECT_TRUE(c.differs_somewhere(c.exact_sum(Variant::nodes_first)));
  }
  EXPECT_FALSE(c.differs_somewhere(c.exact_sum()));
}

TEST(ReduceScatterOrder, AnOwnContributionLeftUnroundedWouldShow) {
  for (const Wire wire : {Wire::bf16_inner, Wire::bf16_outer}) {
    Case c{wire == Wire::bf16_inner ? Hierarchy::flat : Hierarchy::one_rank_a_node, wire, 1601};
    make_mpi_collectives(c.topology, c.options())->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    if (world().size() > 1) {
      EXPECT_TRUE(c.differs_somewhere(c.exact_sum(Variant::own_not_rounded)));
    }
    EXPECT_FALSE(c.differs_somewhere(c.exact_sum()));
  }
}

/// Ranks of equal nodes placed one after the other, and interleaved: node by world rank.
struct Placements {
  std::array<int, 4> block, cyclic;
};

class ReduceScatterPlacement : public testing::TestWithParam<Placements> {};

TEST_P(ReduceScatterPlacement, BlockAndCyclicGiveTheSameBitsAndBytes) {
  if (world().size() != 4) return;
  const auto made = [](const std::array<int, 4>& nodes) {
    return Topology::discover(world(), std::to_string(nodes[static_cast<std::size_t>(world().rank())]));
  };
  const Topology block = made(GetParam().block), cyclic = made(GetParam().cyclic);
  ASSERT_EQ(block.layout(), cyclic.layout());
  for (const Reduction mode : {Reduction::exact, Reduction::fast}) {
    for (const Wire wire : {Wire::fp32, Wire::bf16_both}) {
      std::vector<std::vector<std::string>> bits;
      for (const Topology* const topology : {&block, &cyclic}) {
        Case c{*topology, wire, 1601};
        const CollectivesOptions options = c.options(mode);
        const auto collectives = make_mpi_collectives(*topology, options);
        const Event reduced = collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {});
        collectives->all_gather(c.space, c.flat_view(), reduced).wait();
        std::map<std::string, Traffic::Bytes> expected;
        expected["reduce_scatter"] = reduce_scatter_bytes(c.space, topology->canonical_rank(), c.flat_dtype, options);
        expected["all_gather"] = all_gather_bytes(c.space, topology->canonical_rank(), 4);
        EXPECT_EQ(collectives->traffic().by_operation, expected);
        const auto mine = c.shard_bits();
        bits.push_back(topology->canonical_comm().all_gather(
            std::string(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(mine[0]))));
      }
      if (mode == Reduction::exact) {
        EXPECT_EQ(bits[0], bits[1]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceScatterPlacement,
                         testing::Values(Placements{{0, 0, 1, 1}, {0, 1, 0, 1}}, Placements{{0, 0, 0, 1}, {0, 1, 0, 0}},
                                         Placements{{0, 0, 1, 2}, {0, 1, 2, 0}}),
                         [](const auto& placements) {
                           std::string name = "nodes";
                           for (const int node : placements.param.cyclic) name.append("_").append(std::to_string(node));
                           return name;
                         });

TEST(ReduceScatterTiming, RandomDelaysOfRanksChangeNoBit) {
  Case c{Hierarchy::two_nodes, Wire::fp32, 70001};
  const auto collectives = make_mpi_collectives(c.topology, c.options());
  const auto expected = c.owned_bits(c.exact_sum());
  std::minstd_rand random{static_cast<unsigned>(1 + world().rank())};
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 10));
    const Event first = collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {});
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 10));
    first.wait();
    ASSERT_EQ(c.shard_bits(), expected);
  }
}

TEST(ReduceScatterInPlace, TheShardMayBeTheOwnSliceOfTheBuffer) {
  for (const Hierarchy hierarchy : {Hierarchy::flat, Hierarchy::one_rank_a_node, Hierarchy::cyclic}) {
    Case c{hierarchy, Wire::fp32, 70001};
    const std::vector<int> slices = c.space.owned_slices(c.topology.canonical_rank());
    if (any_of(world(), slices.size() != 1)) continue;
    float* const own = reinterpret_cast<float*>(c.flat.data()) + c.space.slice_begin(slices[0]);
    const BufferView in_place{reinterpret_cast<std::byte*>(own), c.space.slice_size(), DType::f32};
    make_mpi_collectives(c.topology, c.options())->reduce_scatter(c.space, c.flat_view(), in_place, {}).wait();
    c.shard.assign(own, own + c.space.slice_size());
    EXPECT_EQ(c.shard_bits(), c.owned_bits(c.exact_sum()));
  }
}

TEST(ReduceScatterChunks, TheirSizeChangesNoBit) {
  for (const std::int64_t chunk_bytes : {std::int64_t{100000}, std::int64_t{1} << 30}) {
    Case c{Hierarchy::two_nodes, Wire::bf16_both, 70001};
    CollectivesOptions options = c.options();
    options.chunk_bytes = chunk_bytes;
    make_mpi_collectives(c.topology, options)->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    EXPECT_EQ(c.shard_bits(), c.owned_bits(c.exact_sum()));
  }
}

}  // namespace
}  // namespace argosy::comm
