// Operations that overlap with the caller: begun when their data is ready, in order, and failing together.

#include <algorithm>
#include <optional>

#include "comm/host_stream.hpp"
#include "mpi/comm/reduction_case.hpp"
#include "support/refusal.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy, argosy::test::world;
using test::Case, test::view_of, test::Wire;

TEST(Overlap, AReductionReturnsAtOnceAndBeginsWhenItsBufferIsReady) {
  Case c{Hierarchy::two_nodes, Wire::fp32, 70001};
  const std::vector<std::byte> values = c.flat;
  std::fill(c.flat.begin(), c.flat.end(), std::byte{0});
  HostEvent computed;
  const auto collectives = make_mpi_collectives(c.topology);
  const Event reduced = collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), computed.event());
  EXPECT_FALSE(reduced.done());
  c.flat = values;
  computed.complete();
  reduced.wait();
  EXPECT_EQ(c.shard_bits(), c.owned_bits(c.exact_sum()));
}

TEST(Overlap, OperationsKeepTheOrderOfTheirCalls) {
  Case c{Hierarchy::two_nodes, Wire::fp32, 1601};
  HostEvent computed;
  const auto collectives = make_mpi_collectives(c.topology);
  const std::vector<int> own = c.space.owned_slices(c.topology.canonical_rank());
  Event last = collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), computed.event());
  // Each rank's first sums go to all ranks, from where they are summed again.
  std::vector<float> flat(static_cast<std::size_t>(c.space.padded_size()));
  HostStream copier{[] {}};
  last = copier.run(last, [&] {
    for (std::size_t i = 0; i < own.size(); ++i)
      std::copy_n(c.shard.begin() + static_cast<std::ptrdiff_t>(i) * c.space.slice_size(), c.space.slice_size(),
                  flat.begin() + c.space.slice_begin(own[i]));
  });
  last = collectives->all_gather(c.space, view_of(flat), last);
  std::vector<float> twice(c.shard.size());
  last = collectives->reduce_scatter(c.space, view_of(flat), view_of(twice), {});
  computed.complete();
  std::array<std::int64_t, 1> one{1};
  collectives->all_reduce(std::span<std::int64_t>{one});
  EXPECT_TRUE(last.done()) << "a sum of scalars has overtaken it";
  EXPECT_EQ(one[0], world().size());
  std::vector<float> expected = c.exact_sum();
  for (float& value : expected) {  // all ranks contribute the same
    const float term = value;
    for (int node = 0; node < c.topology.layout().nodes(); ++node) {
      float partial = term;
      for (int local = 1; local < c.topology.layout().node_size(node); ++local) partial += term;
      value = node == 0 ? partial : value + partial;
    }
  }
  c.shard = twice;
  EXPECT_EQ(c.shard_bits(), c.owned_bits(expected));
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter").calls, 2);
}

TEST(Overlap, WhatOneSetOfCollectivesWaitsForDelaysNoOther) {
  Case c{Hierarchy::two_nodes, Wire::fp32, 1601};
  const auto gathers = make_mpi_collectives(c.topology), reduces = make_mpi_collectives(c.topology);
  HostEvent later;
  std::vector<float> flat(static_cast<std::size_t>(c.space.padded_size()), 1.0F);
  const Event gathered = gathers->all_gather(c.space, view_of(flat), later.event());
  reduces->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  EXPECT_FALSE(gathered.done());
  later.complete();
  gathered.wait();
}

TEST(Overlap, AfterOneHasFailedAllFailAlike) {
  Case c{Hierarchy::flat, Wire::fp32, 1601};
  const auto collectives = make_mpi_collectives(c.topology);
  HostEvent computed;
  const Event first = collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), computed.event());
  computed.complete(std::make_exception_ptr(Error{Fault::device, {.wanted = "a gradient"}}));
  const auto expect_failure = [](const auto& body) {
    EXPECT_EQ(argosy::test::refusal(Fault::device, body), "expected a gradient");
  };
  expect_failure([&] { first.wait(); });
  expect_failure([&] { collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait(); });
  std::array values{1.0};
  expect_failure([&] { collectives->all_reduce(std::span<double>{values}); });
}

TEST(Overlap, WhatNobodyWaitsForIsAbandoned) {
  Case c{Hierarchy::flat, Wire::fp32, 1601};
  std::optional<Event> undone;
  {
    const HostEvent never;
    const auto collectives = make_mpi_collectives(c.topology);
    undone = collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), never.event());
  }
  EXPECT_THROW(undone->wait(), Error);
}

}  // namespace
}  // namespace argosy::comm
