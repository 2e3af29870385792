// The two modes other than exact: fast, which promises a sum and its bytes, and elastic, which promises bits.

#include <algorithm>

#include "core/error.hpp"
#include "mpi/comm/reduction_case.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy;
using test::Case, test::view_of, test::Wire;

class Fast : public testing::TestWithParam<test::HierarchyAndWire> {
 protected:
  Case c{std::get<0>(GetParam()), std::get<1>(GetParam()), 30011};
  std::vector<float> sum = c.fill_with_integers();
  const std::unique_ptr<Collectives> collectives = make_mpi_collectives(c.topology, c.options(Reduction::fast));
};

TEST_P(Fast, SumsIntegersExactlyGoesOnAndCountsTheBytesOfTheFormula) {
  collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  EXPECT_EQ(c.shard_bits(), c.owned_bits(sum));
  collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}, {.continues = true}).wait();
  for (float& value : sum) value *= 2;
  EXPECT_EQ(c.shard_bits(), c.owned_bits(sum));
  const Traffic::Bytes once = c.bytes_sent();
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"),
            (Traffic::Bytes{.inner = 2 * once.inner, .outer = 2 * once.outer, .calls = 2}));
}

TEST_P(Fast, LevelsOneByOneSumTheSame) {
  std::vector<float> slots = c.empty_slots();
  for (const bool continues : {false, true})
    collectives->reduce_scatter(c.space, c.flat_view(), view_of(slots), {}, {Levels::inner, continues}).wait();
  collectives->reduce_scatter(c.space, view_of(slots), c.shard_view(), {}, {.levels = Levels::outer}).wait();
  for (float& value : sum) value *= 2;
  EXPECT_EQ(c.shard_bits(), c.owned_bits(sum));
}

INSTANTIATE_TEST_SUITE_P(All, Fast, test::every_hierarchy_with({Wire::fp32, Wire::bf16_flat, Wire::bf16_both}),
                         test::text_of);

TEST(FastWire, BothLevelsRoundWhereTheyAreToldTo) {
  for (const Wire wire : {Wire::bf16_inner, Wire::bf16_outer}) {
    Case c{wire == Wire::bf16_inner ? Hierarchy::flat : Hierarchy::one_rank_a_node, wire, 1601};
    if (c.topology.world_size() == 1) return;
    const auto collectives = make_mpi_collectives(c.topology, c.options(Reduction::fast));
    collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    EXPECT_TRUE(std::all_of(c.shard.begin(), c.shard.end(), [](float x) { return x == test::rounded(x); }));
  }
}

/// Micro-batches of a step, which 1, 2, 3 and 4 ranks share evenly.
constexpr int micro_batches = 12;

/// The running sum of all micro-batches, one after the other.
std::vector<float> running_sum(std::int64_t elements, bool reversed = false) {
  const auto term = [&](int j) { return test::contribution(reversed ? micro_batches - 1 - j : j, elements); };
  std::vector<float> sum = term(0);
  for (int j = 1; j < micro_batches; ++j) {
    const std::vector<float> more = term(j);
    std::transform(sum.begin(), sum.end(), more.begin(), sum.begin(), std::plus<>{});
  }
  return sum;
}

/// Reduces every micro-batch in turn, as ranks of that layout share them.
void reduce_all(Case& c, Collectives& collectives) {
  const int world_size = c.topology.world_size();
  for (int a = 0; a < micro_batches / world_size; ++a) {
    const auto mine = test::contribution(a * world_size + c.topology.canonical_rank(), c.space.padded_size());
    std::memcpy(c.flat.data(), mine.data(), c.flat.size());
    collectives.reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}, {.continues = a > 0}).wait();
  }
}

class Elastic : public testing::TestWithParam<Hierarchy> {};

TEST_P(Elastic, GivesTheBitsOfOneRankThatAddsMicroBatchesInOrder) {
  Case c{GetParam(), Wire::fp32, 30011};
  const auto collectives = make_mpi_collectives(c.topology, {.reduction = Reduction::elastic, .chunk_bytes = 1});
  reduce_all(c, *collectives);
  EXPECT_EQ(c.shard_bits(), c.owned_bits(running_sum(c.space.padded_size())));
  EXPECT_TRUE(c.differs_somewhere(running_sum(c.space.padded_size(), true))) << "any order would pass";
  const Traffic::Bytes once = elastic_bytes(c.space, c.topology.canonical_rank());
  const int calls = micro_batches / c.topology.world_size();
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"),
            (Traffic::Bytes{.inner = calls * once.inner, .outer = calls * once.outer, .calls = calls}));
}

TEST_P(Elastic, IsNotWhatExactSumsGive) {
  Case c{GetParam(), Wire::fp32, 30011};
  if (c.topology.world_size() == 1) return;  // one rank knows one order
  reduce_all(c, *make_mpi_collectives(c.topology, c.options()));
  EXPECT_TRUE(c.differs_somewhere(running_sum(c.space.padded_size())));
}

INSTANTIATE_TEST_SUITE_P(All, Elastic, testing::ValuesIn(argosy::test::hierarchies()), argosy::test::by_name);

TEST(ElasticOptions, ANarrowWireIsABrokenInvariant) {
  const Topology& topology = argosy::test::topology(Hierarchy::flat);
  EXPECT_THROW((void)make_mpi_collectives(topology, {.reduction = Reduction::elastic, .wire_outer = DType::bf16}),
               Error);
}

}  // namespace
}  // namespace argosy::comm
