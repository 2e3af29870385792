// Levels one by one, sums that go on, sums of whole buffers, and that the recorder counts what the backend counts.

#include <algorithm>

#include "mpi/comm/reduction_case.hpp"
#include "support/all_reduce_flat.hpp"
#include "support/recording.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy, argosy::test::RecordingCollectives;
using test::Case, test::view_of, test::Wire;

/// The backend behind a recorder that must count the same.
struct Counted {
  explicit Counted(const Case& c)
      : backend(make_mpi_collectives(c.topology, c.options())),
        recorder(c.topology.layout(), c.topology.canonical_rank(), backend.get(), c.options()) {}
  ~Counted() { EXPECT_EQ(recorder.traffic().by_operation, backend->traffic().by_operation); }

  std::unique_ptr<Collectives> backend;
  RecordingCollectives recorder;
};

class LevelsTest : public testing::TestWithParam<test::HierarchyAndWire> {
 protected:
  Case c{std::get<0>(GetParam()), std::get<1>(GetParam()), 30011};
  Counted counted{c};
  std::vector<float> slots = c.empty_slots();
  const std::vector<float> sum = c.exact_sum();
  std::vector<float> expected = sum;
};

TEST_P(LevelsTest, TheNodeThenTheNodesGiveTheBitsAndTheBytesOfBoth) {
  counted.recorder.reduce_scatter(c.space, c.flat_view(), view_of(slots), {}, {.levels = Levels::inner}).wait();
  counted.recorder.reduce_scatter(c.space, view_of(slots), c.shard_view(), {}, {.levels = Levels::outer}).wait();
  EXPECT_EQ(c.shard_bits(), c.owned_bits(sum));

  Counted in_one{c};
  in_one.recorder.reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  const Traffic::Bytes two = counted.backend->traffic().by_operation.at("reduce_scatter");
  const Traffic::Bytes one = in_one.backend->traffic().by_operation.at("reduce_scatter");
  EXPECT_EQ(std::tuple(two.inner, two.outer), std::tuple(one.inner, one.outer));
}

TEST_P(LevelsTest, ContinuedSumsAddTheWholeSumToWhatIsThere) {
  counted.recorder.reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  for (int i = 0; i < 2; ++i) {
    counted.recorder.reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}, {.continues = true}).wait();
    std::transform(expected.begin(), expected.end(), sum.begin(), expected.begin(), std::plus<>{});
  }
  EXPECT_EQ(c.shard_bits(), c.owned_bits(expected));
}

TEST_P(LevelsTest, SlotsMayContinueOverMicroBatchesAndCrossNodesOnce) {
  for (const bool continues : {false, true})
    counted.recorder.reduce_scatter(c.space, c.flat_view(), view_of(slots), {}, {Levels::inner, continues}).wait();
  counted.recorder.reduce_scatter(c.space, view_of(slots), c.shard_view(), {}, {.levels = Levels::outer}).wait();
  // Twice a node's sum rounds as it does: all is twice the sum of one micro-batch.
  for (float& value : expected) value *= 2;
  EXPECT_EQ(c.shard_bits(), c.owned_bits(expected));
}

TEST_P(LevelsTest, AWholeBufferIsSummedOnEveryRankAtTheBoundOfEveryNode) {
  argosy::test::all_reduce_flat(counted.recorder, c.space, c.topology.canonical_rank(), c.flat_view());
  Case wanted{c.topology, c.wire, 30011};
  wanted.fill(sum);
  EXPECT_TRUE(c.flat == wanted.flat);
  std::array<std::int64_t, 1> left_node{0};
  for (const auto& [operation, bytes] : counted.backend->traffic().by_operation) left_node[0] += bytes.outer;
  c.topology.node_comm().all_reduce(std::span<std::int64_t>{left_node});
  const std::int64_t nodes = c.topology.layout().nodes(), reduced = c.rounds_outer() ? 2 : 4;
  const auto gathered = static_cast<std::int64_t>(size_of(c.flat_dtype));
  EXPECT_EQ(left_node[0], (nodes - 1) * c.space.padded_size() / nodes * (reduced + gathered));
}

INSTANTIATE_TEST_SUITE_P(All, LevelsTest, test::every_hierarchy_with({Wire::fp32, Wire::bf16_flat, Wire::bf16_both}),
                         test::text_of);

class GatherLevels : public testing::TestWithParam<Hierarchy> {};

TEST_P(GatherLevels, TheNodesThenTheNodeFillTheBuffer) {
  Case c{GetParam(), Wire::fp32, 1601};
  Counted counted{c};
  const partition::Layout& layout = c.topology.layout();
  c.fill_own_slices();
  counted.recorder.all_gather(c.space, c.own_slots(), {}, Levels::outer).wait();
  for (int slice = 0; slice < c.space.slices(); ++slice) {
    const bool own_slot = layout.slot_owner(c.topology.node(), slice / layout.nodes()) == c.topology.local_rank();
    EXPECT_EQ(c.holds(slice), own_slot) << slice;
  }
  counted.recorder.all_gather(c.space, c.flat_view(), {}, Levels::inner).wait();
  for (int slice = 0; slice < c.space.slices(); ++slice) EXPECT_TRUE(c.holds(slice)) << slice;
}

INSTANTIATE_TEST_SUITE_P(All, GatherLevels, testing::ValuesIn(argosy::test::hierarchies()), argosy::test::by_name);

}  // namespace
}  // namespace argosy::comm
