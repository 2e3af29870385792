// The two modes beside exact: fast, which promises a sum and its bytes, and elastic, which promises bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "mpi/comm/reduction_case.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy;
using test::Case;
using test::Wire;

/// A case whose contributions are small integers: every order of adding gives the same sum, in bf16 as well.
struct IntegerCase : Case {
  IntegerCase(Hierarchy hierarchy, Wire of_wire) : Case(hierarchy, of_wire, 30011) {
    for (std::int64_t i = 0; i < space.padded_size(); ++i) {
      const float value = term(topology.canonical_rank(), i);
      const std::uint16_t narrow = bf16_from_f32(value);
      const void* const from = flat_dtype == DType::bf16 ? static_cast<const void*>(&narrow) : &value;
      std::memcpy(flat.data() + static_cast<std::size_t>(i) * size_of(flat_dtype), from, size_of(flat_dtype));
    }
  }
  static float term(int rank, std::int64_t i) { return static_cast<float>((i * 7 + rank * 13) % 61 - 30); }
  [[nodiscard]] std::vector<float> sum(float times) const {
    std::vector<float> values(static_cast<std::size_t>(space.padded_size()), 0.0F);
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (int rank = 0; rank < topology.world_size(); ++rank)
        values[i] += times * term(rank, static_cast<std::int64_t>(i));
    }
    return values;
  }
  [[nodiscard]] CollectivesOptions fast() const {
    CollectivesOptions chosen = options();
    chosen.reduction = Reduction::fast;
    return chosen;
  }
};

class Fast : public testing::TestWithParam<std::tuple<Hierarchy, Wire>> {};

TEST_P(Fast, SumsIntegersExactlyGoesOnAndCountsTheBytesOfTheFormula) {
  const auto [hierarchy, wire] = GetParam();
  IntegerCase c{hierarchy, wire};
  const auto collectives = make_mpi_collectives(c.topology, c.fast());
  collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  EXPECT_EQ(c.shard_bits(), c.owned_bits(c.sum(1)));
  collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}, {.continues = true}).wait();
  EXPECT_EQ(c.shard_bits(), c.owned_bits(c.sum(2)));
  const Traffic::Bytes once =
      reduce_scatter_bytes(c.space, c.topology.canonical_rank(), c.rounds_inner() ? 2 : 4, c.rounds_outer() ? 2 : 4);
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"),
            (Traffic::Bytes{.inner = 2 * once.inner, .outer = 2 * once.outer, .calls = 2}));
}

TEST_P(Fast, LevelsOneByOneSumTheSame) {
  const auto [hierarchy, wire] = GetParam();
  IntegerCase c{hierarchy, wire};
  const auto collectives = make_mpi_collectives(c.topology, c.fast());
  std::vector<float> slots(c.shard.size() * static_cast<std::size_t>(c.topology.layout().nodes()));
  const BufferView view{reinterpret_cast<std::byte*>(slots.data()), std::ssize(slots), DType::f32};
  for (const bool continues : {false, true}) {
    collectives->reduce_scatter(c.space, c.flat_view(), view, {}, {.levels = Levels::inner, .continues = continues})
        .wait();
  }
  collectives->reduce_scatter(c.space, view, c.shard_view(), {}, {.levels = Levels::outer}).wait();
  EXPECT_EQ(c.shard_bits(), c.owned_bits(c.sum(2)));
}

INSTANTIATE_TEST_SUITE_P(All, Fast,
                         testing::Combine(testing::ValuesIn(argosy::test::hierarchies()),
                                          testing::Values(Wire::fp32, Wire::bf16_flat, Wire::bf16_both)),
                         [](const auto& c) {
                           return argosy::test::name_of(std::get<0>(c.param)) + "_" + name_of(std::get<1>(c.param));
                         });

TEST(FastWire, BothLevelsRoundWhereTheyAreToldTo) {
  for (const Wire wire : {Wire::bf16_inner, Wire::bf16_outer}) {
    const Hierarchy hierarchy = wire == Wire::bf16_inner ? Hierarchy::flat : Hierarchy::one_rank_a_node;
    Case c{hierarchy, wire, 1601};
    if (c.topology.world_size() == 1) return;
    CollectivesOptions options = c.options();
    options.reduction = Reduction::fast;
    make_mpi_collectives(c.topology, options)->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
    EXPECT_TRUE(std::all_of(c.shard.begin(), c.shard.end(), [](float x) { return x == test::rounded(x); }));
  }
}

/// Micro-batches of a step, which 1, 2, 3 and 4 ranks share evenly.
constexpr int micro_batches = 12;

/// The running sum of all micro-batches, one after the other.
std::vector<float> running_sum(std::int64_t elements, bool reversed = false) {
  std::vector<float> sum;
  for (int j = 0; j < micro_batches; ++j) {
    const std::vector<float> term = test::contribution(reversed ? micro_batches - 1 - j : j, elements);
    if (j == 0) {
      sum = term;
    } else {
      std::transform(sum.begin(), sum.end(), term.begin(), sum.begin(), std::plus<>{});
    }
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

INSTANTIATE_TEST_SUITE_P(All, Elastic, testing::ValuesIn(argosy::test::hierarchies()),
                         [](const auto& hierarchy) { return argosy::test::name_of(hierarchy.param); });

TEST(ElasticOptions, ANarrowWireIsABrokenInvariant) {
  const Topology& topology = argosy::test::topology(Hierarchy::flat);
  EXPECT_THROW((void)make_mpi_collectives(topology, {.reduction = Reduction::elastic, .wire_outer = DType::bf16}),
               Error);
}

}  // namespace
}  // namespace argosy::comm
