#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "mpi/comm/reduction_case.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy;
using argosy::test::world;
using test::Case;
using test::nested_sum;
using test::Variant;
using test::Wire;

class ReduceScatter : public testing::TestWithParam<std::tuple<Hierarchy, Wire>> {};

TEST_P(ReduceScatter, EqualsTheNestedSumBitForBitAndCountsThePayloadOfTheFormula) {
  const auto [hierarchy, wire] = GetParam();
  Case c{hierarchy, wire, 70001};  // indivisible: padding is tested; several pieces a slice
  const auto collectives = make_mpi_collectives(c.topology, c.options());
  const auto expected = c.owned_bits(nested_sum(c.space, c.rounds_inner(), c.rounds_outer()));
  for (int i = 0; i < 2; ++i) {
    collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    ASSERT_EQ(c.shard_bits(), expected);
  }
  const std::int64_t inner_bytes = c.rounds_inner() ? 2 : 4, outer_bytes = c.rounds_outer() ? 2 : 4;
  const Traffic::Bytes once = reduce_scatter_bytes(c.space, c.topology.canonical_rank(), inner_bytes, outer_bytes);
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"),
            (Traffic::Bytes{.inner = 2 * once.inner, .outer = 2 * once.outer, .calls = 2}));
}

INSTANTIATE_TEST_SUITE_P(
    All, ReduceScatter,
    testing::Combine(testing::ValuesIn(argosy::test::hierarchies()),
                     testing::Values(Wire::fp32, Wire::bf16_flat, Wire::bf16_inner, Wire::bf16_outer, Wire::bf16_both)),
    [](const auto& c) { return argosy::test::name_of(std::get<0>(c.param)) + "_" + name_of(std::get<1>(c.param)); });

TEST(ReduceScatterOrder, SummingNodesBeforeLocalRanksWouldShow) {
  Case c{Hierarchy::two_nodes, Wire::fp32, 1601};
  make_mpi_collectives(c.topology)->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  if (world().size() > 2) {
    EXPECT_TRUE(c.differs_somewhere(nested_sum(c.space, false, false, Variant::nodes_first)));
  }
  EXPECT_FALSE(c.differs_somewhere(nested_sum(c.space, false, false)));
}

TEST(ReduceScatterOrder, AnOwnContributionLeftUnroundedWouldShow) {
  for (const Wire wire : {Wire::bf16_inner, Wire::bf16_outer}) {
    Case c{wire == Wire::bf16_inner ? Hierarchy::flat : Hierarchy::one_rank_a_node, wire, 1601};
    make_mpi_collectives(c.topology, c.options())->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    if (world().size() > 1) {
      EXPECT_TRUE(
          c.differs_somewhere(nested_sum(c.space, c.rounds_inner(), c.rounds_outer(), Variant::own_not_rounded)));
    }
    EXPECT_FALSE(c.differs_somewhere(nested_sum(c.space, c.rounds_inner(), c.rounds_outer())));
  }
}

TEST(ReduceScatterPlacement, BlockAndCyclicGiveTheSameBits) {
  if (world().size() % 2 != 0) return;
  Case block{Hierarchy::two_nodes, Wire::fp32, 1601}, cyclic{Hierarchy::cyclic, Wire::fp32, 1601};
  for (Case* c : {&block, &cyclic}) {
    make_mpi_collectives(c->topology)->reduce_scatter(c->space, c->flat_view(), c->shard_view(), {}).wait();
  }
  const auto by_canonical_rank = [](const Case& c) {
    const auto bits = c.shard_bits();
    return c.topology.canonical_comm().all_gather(
        std::string(reinterpret_cast<const char*>(bits.data()), bits.size() * sizeof(bits[0])));
  };
  EXPECT_EQ(by_canonical_rank(block), by_canonical_rank(cyclic));
}

TEST(ReduceScatterTiming, DelayedRanksChangeNoBit) {
  Case c{Hierarchy::two_nodes, Wire::fp32, 70001};
  const auto collectives = make_mpi_collectives(c.topology, c.options());
  const auto expected = c.owned_bits(nested_sum(c.space, false, false));
  for (int delayed = 0; delayed < world().size(); ++delayed) {
    if (world().rank() == delayed) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    ASSERT_EQ(c.shard_bits(), expected);
  }
}

TEST(ReduceScatterInPlace, TheShardMayBeTheOwnSliceOfTheBuffer) {
  for (const Hierarchy hierarchy : {Hierarchy::flat, Hierarchy::one_rank_a_node, Hierarchy::cyclic}) {
    Case c{hierarchy, Wire::fp32, 70001};
    const std::vector<int> slices = c.space.owned_slices(c.topology.canonical_rank());
    if (any_of(world(), slices.size() != 1)) continue;
    float* const own = reinterpret_cast<float*>(c.flat.data()) + c.space.slice_begin(slices[0]);
    BufferView in_place = c.shard_view();
    in_place.at = reinterpret_cast<std::byte*>(own);
    make_mpi_collectives(c.topology, c.options())->reduce_scatter(c.space, c.flat_view(), in_place, {}).wait();
    c.shard.assign(own, own + c.space.slice_size());
    EXPECT_EQ(c.shard_bits(), c.owned_bits(nested_sum(c.space, false, false)));
  }
}

TEST(ReduceScatterChunks, TheirSizeChangesNoBit) {
  for (const std::int64_t chunk_bytes : {std::int64_t{100000}, std::int64_t{1} << 30}) {
    Case c{Hierarchy::two_nodes, Wire::bf16_both, 70001};
    CollectivesOptions options = c.options();
    options.chunk_bytes = chunk_bytes;
    make_mpi_collectives(c.topology, options)->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    EXPECT_EQ(c.shard_bits(), c.owned_bits(nested_sum(c.space, c.rounds_inner(), c.rounds_outer())));
  }
}

}  // namespace
}  // namespace argosy::comm
