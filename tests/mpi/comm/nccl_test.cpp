// The NCCL backend on hosts: what it asks of NCCL and CUDA, in which order and amounts, and that the sums it forms so
// have the bits of the MPI backend's.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>

#include "comm/host_stream.hpp"
#include "comm/nccl_collectives.hpp"
#include "comm/nccl_watch.hpp"
#include "comm/session.hpp"
#include "mpi/comm/reduction_case.hpp"
#include "mpi/comm/stand_in_nccl.hpp"
#include "support/refusal.hpp"

namespace argosy::comm {
namespace {

using argosy::test::Hierarchy, argosy::test::world;
using test::Case, test::StandInNccl, test::view_of, test::Wire;
using testing::AllOf, testing::HasSubstr;

/// Bytes of device memory that exact sums of `space` take on a rank: contributions received at both levels, the node's
/// sums for other nodes, and rounded copies where the type sent is narrower than the buffer's.
std::int64_t nccl_scratch_bytes(const partition::FlatSpace& space, int canonical_rank, DType flat,
                                const CollectivesOptions& options) {
  const partition::Layout& layout = space.layout();
  const std::int64_t nodes = layout.nodes(), here = layout.node_size(layout.node_of(canonical_rank));
  const std::int64_t slices = space.owned_size(canonical_rank), slots = slices * nodes;
  const bool rounds = flat == DType::f32 && layout.slots() > 1 && options.wire_inner == DType::bf16;
  const std::int64_t inner = flat == DType::bf16 || rounds ? 2 : 4,
                     outer = static_cast<std::int64_t>(size_of(options.wire_outer));
  const std::int64_t received = std::max((here - 1) * slots * inner, (nodes - 1) * slices * outer);
  const std::int64_t rounded = rounds ? space.padded_size() * 2 : nodes > 1 && outer == 2 ? slots * 2 : 0;
  return received + (nodes > 1 ? slots * 4 : 0) + rounded;
}

class Nccl : public testing::TestWithParam<test::HierarchyAndWire> {
 protected:
  Case c_{std::get<0>(GetParam()), std::get<1>(GetParam()), 30011};
  StandInNccl nccl_{c_.topology.canonical_comm()};

  [[nodiscard]] std::unique_ptr<Collectives> make(CollectivesOptions options) const {
    return make_nccl_collectives(c_.topology, options, nccl_.table());
  }
  /// Communicators are made in this order: the world; of reductions the node's, then the own slots'; of gathers alike.
  [[nodiscard]] std::vector<int> across_nodes() const {
    std::vector<int> comms;
    const int owned = static_cast<int>(c_.topology.slot_comms().size());
    if (c_.topology.layout().nodes() == 1) return comms;
    for (int i = 0; i < owned; ++i) comms.insert(comms.end(), {2 + i, 3 + owned + i});
    return comms;
  }
  /// What NCCL was asked to send over communicators: those within nodes, and those across them.
  [[nodiscard]] Traffic::Bytes asked() const {
    const std::vector<int> across = across_nodes();
    Traffic::Bytes bytes;
    for (const StandInNccl::Call& call : nccl_.calls) {
      const bool outer = std::ranges::find(across, call.comm) != across.end();
      const int ranks = outer ? c_.topology.layout().nodes() : c_.topology.node_comm().size();
      const std::int64_t size_bytes = call.count * test::bytes_of(call.type);
      std::int64_t& level = outer ? bytes.outer : bytes.inner;
      if (call.what == "send") level += size_bytes;
      if (call.what == "reduce_scatter" || call.what == "all_gather") level += (ranks - 1) * size_bytes;
    }
    return bytes;
  }
};

TEST_P(Nccl, ExactSumsHaveTheBitsOfTheMpiBackendAndTheBytesOfTheFormula) {
  const auto collectives = make(c_.options());
  std::vector<float> sum = c_.exact_sum();
  collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {}).wait();
  EXPECT_EQ(c_.shard_bits(), c_.owned_bits(sum));
  if (c_.wire == Wire::bf16_both) {  // the same is known of it for the other wires
    std::vector<float> by_mpi(c_.shard.size());
    const auto mpi = make_mpi_collectives(c_.topology, c_.options());
    mpi->reduce_scatter(c_.space, c_.flat_view(), view_of(by_mpi), {}).wait();
    EXPECT_EQ(by_mpi, c_.shard);
    EXPECT_EQ(collectives->traffic().by_operation, mpi->traffic().by_operation);
  }
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"), c_.bytes_sent());
  EXPECT_EQ(asked(), (Traffic::Bytes{c_.bytes_sent().inner, c_.bytes_sent().outer}));
  EXPECT_EQ(nccl_.allocated_bytes,
            nccl_scratch_bytes(c_.space, c_.topology.canonical_rank(), c_.flat_dtype, c_.options()));

  // The levels one by one, and going on.
  std::vector<float> slots = c_.empty_slots();
  for (const bool continues : {false, true})
    (void)collectives->reduce_scatter(c_.space, c_.flat_view(), view_of(slots), {}, {Levels::inner, continues});
  for (const bool continues : {false, true})
    (void)collectives->reduce_scatter(c_.space, view_of(slots), c_.shard_view(), {}, {Levels::outer, continues});
  for (float& value : sum) value *= 4;  // powers of two change no rounding
  EXPECT_EQ(c_.shard_bits(), c_.owned_bits(sum));
  EXPECT_EQ(asked(), (Traffic::Bytes{3 * c_.bytes_sent().inner, 3 * c_.bytes_sent().outer}));
}

TEST_P(Nccl, ExactSumsOfALateDeviceHaveTheSameBits) {
  StandInNccl late{c_.topology.canonical_comm(), std::chrono::milliseconds(1)};
  const auto collectives = make_nccl_collectives(c_.topology, c_.options(), late.table());
  const std::vector<float> sum = c_.exact_sum();
  const Event reduced = collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {});
  EXPECT_FALSE(reduced.done());
  reduced.wait();
  EXPECT_EQ(c_.shard_bits(), c_.owned_bits(sum));
}

INSTANTIATE_TEST_SUITE_P(All, Nccl, test::every_hierarchy_with({Wire::fp32, Wire::bf16_flat, Wire::bf16_both}),
                         test::text_of);

class NcclFast : public Nccl {};

TEST_P(NcclFast, SumsAreNcclsOnBothLevels) {
  const std::vector<float> sum = c_.fill_with_integers();
  const auto collectives = make(c_.options(Reduction::fast));
  collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {}).wait();
  EXPECT_EQ(c_.shard_bits(), c_.owned_bits(sum));
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"), c_.bytes_sent());
  for (const StandInNccl::Call& call : nccl_.calls) EXPECT_NE(call.what, "send");
  const partition::Layout& layout = c_.topology.layout();
  if (layout.slots() % layout.node_size(c_.topology.node()) == 0) {  // else by reductions to one rank each
    EXPECT_EQ(asked(), (Traffic::Bytes{c_.bytes_sent().inner, c_.bytes_sent().outer}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, NcclFast, test::every_hierarchy_with({Wire::fp32, Wire::bf16_both}), test::text_of);

class NcclGather : public Nccl {};

TEST_P(NcclGather, FillsTheBufferOnBothLevelsByCommunicatorsOfItsOwn) {
  const auto collectives = make(c_.options());
  const partition::Layout& layout = c_.topology.layout();
  for (const bool at_once : {true, false}) {
    c_.fill_own_slices();
    if (at_once) {
      collectives->all_gather(c_.space, c_.flat_view(), {}).wait();
    } else {
      const Event across = collectives->all_gather(c_.space, c_.own_slots(), {}, Levels::outer);
      collectives->all_gather(c_.space, c_.flat_view(), across, Levels::inner).wait();
    }
    for (int slice = 0; slice < c_.space.slices(); ++slice) EXPECT_TRUE(c_.holds(slice)) << slice;
  }
  const Traffic::Bytes both =
      all_gather_bytes(c_.space, c_.topology.canonical_rank(), static_cast<std::int64_t>(size_of(c_.flat_dtype)));
  EXPECT_EQ(collectives->traffic().by_operation.at("all_gather"), (Traffic::Bytes{2 * both.inner, 2 * both.outer, 3}));
  EXPECT_EQ(asked(), (Traffic::Bytes{2 * both.inner, 2 * both.outer}));
  const int of_reductions = 1 + (layout.nodes() == 1 ? 0 : static_cast<int>(c_.topology.slot_comms().size()));
  for (const StandInNccl::Call& call : nccl_.calls) {
    EXPECT_NE(call.stream, 1) << "the stream of reductions";
    EXPECT_TRUE(call.comm < 0 || call.comm > of_reductions) << call.comm;
  }
}

INSTANTIATE_TEST_SUITE_P(All, NcclGather, test::every_hierarchy_with({Wire::bf16_flat}),
                         [](const auto& c) { return argosy::test::name_of(std::get<0>(c.param)); });

class NcclCalls : public testing::Test {
 protected:
  Case c_{Hierarchy::two_nodes, Wire::bf16_outer, 30011};
  StandInNccl nccl_{c_.topology.canonical_comm()};
  const DeviceStream computing_ = reinterpret_cast<DeviceStream>(std::intptr_t{99});

  void TearDown() override { world().impl().session.device_is_held = false; }
  [[nodiscard]] std::unique_ptr<Collectives> make(double timeout_s = 60) const {
    Session& session = world().impl().session;
    const double before_s = session.timeout_s;
    session.timeout_s = timeout_s;
    auto made = make_nccl_collectives(c_.topology, c_.options(), nccl_.table());
    session.timeout_s = before_s;
    made->set_step(17);
    return made;
  }
  template <class Body>
  static std::string error_of(const Body& body) {
    const Error error = argosy::test::error_of(body);
    EXPECT_EQ(exit_code(error.fault()), Exit::comm);
    return error.what();
  }
  /// That every operation fails, the same way, and that the end leaves NCCL alone.
  void expect_all_fail(std::unique_ptr<Collectives> made, const std::string& sentence) {
    Collectives& collectives = *made;
    std::array values{1.0};
    EXPECT_EQ(error_of([&] { collectives.all_reduce(std::span<double>{values}); }), sentence);
    EXPECT_EQ(error_of([&] { (void)collectives.all_gather(c_.space, c_.flat_view(), {}); }), sentence);
    const auto reduce = [&] { (void)collectives.reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {}); };
    EXPECT_EQ(error_of(reduce), sentence);
    made.reset();
    EXPECT_EQ(nccl_.aborted, 0);
    EXPECT_EQ(nccl_.destroyed, 0);
  }
};

TEST_F(NcclCalls, ComeInTheirOrderOnTheStreamOfReductions) {
  if (world().size() != 4) return;  // two nodes of two
  const auto collectives = make();
  const Event computed = record_event(nccl_.table(), computing_);
  nccl_.calls.clear();
  const Event reduced = collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), computed);
  reduced.wait_on(computing_);
  const std::int64_t slice = c_.space.slice_size();
  EXPECT_EQ(nccl_.calls, (std::vector<StandInNccl::Call>{{"wait", 1},
                                                         {"mark", 1},
                                                         {"group"},
                                                         {"recv", 1, 2 * slice, nccl_f32, 1},
                                                         {"send", 1, 2 * slice, nccl_f32, 1},
                                                         {"end"},
                                                         {"sum", 1, 2},
                                                         {"round", 1},
                                                         {"group"},
                                                         {"recv", 1, slice, nccl_bf16, 2},
                                                         {"send", 1, slice, nccl_bf16, 2},
                                                         {"end"},
                                                         {"sum", 1, 2},
                                                         {"mark", 1},
                                                         {"wait", -1}}));
}

TEST_F(NcclCalls, AnEventOfTheHostHoldsTheHost) {
  const auto collectives = make();
  HostEvent computed;
  const std::jthread compute([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    nccl_.calls.clear();
    computed.complete();
  });
  (void)collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), computed.event());
  EXPECT_EQ(nccl_.calls.front().what, "mark");
}

TEST_F(NcclCalls, AnErrorThatNcclReportsIsNamedEverywhere) {
  auto collectives = make();
  nccl_.hangs = true;
  const Event reduced = collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {});
  EXPECT_FALSE(reduced.done());
  nccl_.async_error = 6;
  const std::string sentence = error_of([&] { reduced.wait(); });
  EXPECT_THAT(sentence,
              AllOf(HasSubstr(fmt::format("reduce_scatter of {} bytes did not succeed", c_.flat_view().size_bytes())),
                    HasSubstr("remote process exited"), HasSubstr("step 17")));
  expect_all_fail(std::move(collectives), sentence);
}

TEST_F(NcclCalls, AnOperationPastTheDeadlineIsNamedEverywhere) {
  auto collectives = make(0.2);
  nccl_.hangs = true;
  const Event gathered = collectives->all_gather(c_.space, c_.flat_view(), {}, Levels::inner);
  if (c_.topology.node_comm().size() == 1) return;  // nothing to wait for
  const std::string sentence = error_of([&] { gathered.wait(); });
  EXPECT_THAT(sentence, AllOf(HasSubstr(fmt::format("all_gather in the node of {} bytes did not end within 0.2",
                                                    c_.flat_view().size_bytes())),
                              HasSubstr("step 17")));
  EXPECT_TRUE(gathered.done());
  expect_all_fail(std::move(collectives), sentence);
}

TEST_F(NcclCalls, ADeviceThatHasFailedIsNamedByWhoWaitsForIt) {
  const auto collectives = make();
  const Event computed = record_event(nccl_.table(), computing_);
  nccl_.hangs = true;
  const Event reduced = collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {});
  nccl_.device_error = 700;
  EXPECT_THROW(computed.wait(), Error);
  EXPECT_THAT(error_of([&] { reduced.wait(); }), HasSubstr("an illegal memory access"));
}

TEST_F(NcclCalls, ARankThatTheDeviceHoldsIsFreedByAnAbort) {
  const auto collectives = make(0.2);
  nccl_.hangs = true;
  (void)collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {});
  const auto start = std::chrono::steady_clock::now();
  while (nccl_.aborted < nccl_.made()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));  // it may end by itself before that
}

TEST_F(NcclCalls, AnAbortThatHangsKeepsNeitherTheOthersNorTheRank) {
  auto collectives = make(0.2);
  nccl_.hangs = nccl_.world_abort_hangs = true;
  (void)collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {});
  while (nccl_.aborted < nccl_.made() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto start = std::chrono::steady_clock::now();
  collectives.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(nccl_.aborted, nccl_.made() - 1);
  nccl_.world_abort_hangs = false;
  while (nccl_.aborted < nccl_.made()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_F(NcclCalls, ARankThatFailsLeavesNcclAndItsMemoryAsTheyAre) {
  EXPECT_THROW(
      {
        const auto collectives = make();
        (void)collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {});
        nccl_.hangs = true;
        throw std::runtime_error("of a rank alone");
      },
      std::runtime_error);
  EXPECT_EQ(nccl_.aborted + nccl_.destroyed, 0);
  EXPECT_EQ(nccl_.allocated_bytes > 0, world().size() > 1);
  EXPECT_TRUE(world().impl().session.device_is_held);
}

TEST_F(NcclCalls, TheirEndAbortsWhatHangs) {
  auto collectives = make();
  nccl_.hangs = true;
  const Event reduced = collectives->reduce_scatter(c_.space, c_.flat_view(), c_.shard_view(), {});
  collectives.reset();
  EXPECT_EQ(nccl_.aborted, nccl_.made());
  (void)error_of([&] { reduced.wait(); });
}

TEST(NcclLate, CommunicatorsEndTogetherAndEveryThreadUsesTheGpuOfTheRank) {
  Case c{Hierarchy::uneven, Wire::bf16_both, 30011};
  StandInNccl nccl{c.topology.canonical_comm(), std::chrono::milliseconds(5)};
  int before = 0;
  nccl.table().get_device(&before);
  nccl.table().set_device(world().rank() + 3);
  auto collectives = make_nccl_collectives(c.topology, c.options(), nccl.table());
  Event done;
  for (const bool continues : {false, true})
    done = collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), done, {.continues = continues});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the watch looks at it
  done.wait();
  std::vector<float> sum = c.exact_sum();
  for (float& value : sum) value *= 2;
  EXPECT_EQ(c.shard_bits(), c.owned_bits(sum));
  const auto start = std::chrono::steady_clock::now();
  collectives.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  EXPECT_EQ(nccl.destroyed, nccl.made());
  EXPECT_EQ(nccl.allocated_bytes, 0);
  EXPECT_EQ(nccl.contexts(), std::set<int>{world().rank() + 3});
  nccl.table().set_device(before);
}

TEST(NcclPart, SomeRanksSumAndGatherAmongThemselvesAndTheirOperationsHaveTheNameOfWhatTheyShare) {
  std::vector<int> members;
  for (int rank = 0; rank < world().size(); rank += 2) members.push_back(rank);
  const std::optional<Topology> part = argosy::test::topology(Hierarchy::uneven).part(members, "encoder.fr");
  if (!part) return;
  Case c{*part, Wire::bf16_both, 30011};
  StandInNccl nccl{part->canonical_comm(), std::chrono::milliseconds(1)};
  Session& session = world().impl().session;
  const double timeout_s = session.timeout_s;
  session.timeout_s = .2;
  const auto collectives = make_nccl_collectives(*part, c.options(), nccl.table());
  session.timeout_s = timeout_s;
  collectives->reduce_scatter(c.space, c.flat_view(), c.shard_view(), {}).wait();
  EXPECT_EQ(c.shard_bits(), c.owned_bits(c.exact_sum()));
  EXPECT_EQ(collectives->traffic().by_operation.at("reduce_scatter"), c.bytes_sent());
  c.fill_own_slices();
  collectives->all_gather(c.space, c.flat_view(), {}).wait();
  for (int slice = 0; slice < c.space.slices(); ++slice) EXPECT_TRUE(c.holds(slice)) << slice;
  if (members.size() == 1) return;  // nothing to wait for
  nccl.hangs = true;
  const Event gathered = collectives->all_gather(c.space, c.flat_view(), {});
  EXPECT_THAT(argosy::test::error_of([&] { gathered.wait(); }).what(),
              HasSubstr(fmt::format("all_gather of encoder.fr of {} bytes did not end within 0.2",
                                    c.flat_view().size_bytes())));
  session.device_is_held = false;
}

TEST_F(NcclCalls, TheVersionIsReadAsPeopleWriteIt) { EXPECT_EQ(nccl_version(nccl_.table()), "2.28.9"); }

TEST_F(NcclCalls, WithoutThePlugInThereIsNoTable) { EXPECT_THROW((void)nccl_table(), Error); }

}  // namespace
}  // namespace argosy::comm
