#include "core/file.hpp"
#include "mpi/train/rank.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/recording.hpp"
#include "support/shared_folder.hpp"
#include "train/host_state.hpp"

/// An optimizer whose state has another dtype for some parameters, through buffers, steps and checkpoints.
namespace argosy::test {
namespace {

class QuantizedOnRanks : public testing::TestWithParam<Hierarchy> {
 protected:
  const comm::Topology& topology_ = topology(GetParam());
  const std::unique_ptr<comm::Collectives> collectives_ = comm::make_mpi_collectives(topology_);
  RecordingCollectives nobody_{partition::Layout{}, 0};
  const spec::Architecture shape_ = small_shape();

  /// The state of all ranks. **Collective.**
  std::vector<double> state_of(Rank& rank) {
    std::vector<double> all = numbers_of(spaces_of(rank), rank.buffers(), topology_.canonical_rank());
    world().all_reduce(std::span<double>{all});
    return all;
  }
  static std::vector<partition::FlatSpace> spaces_of(Rank& rank) {
    std::vector<partition::FlatSpace> spaces;
    for (const model::Unit& unit : rank.model().units()) spaces.push_back(unit.space());
    return spaces;
  }
  static std::vector<double> state_alone(Rank& rank) { return numbers_of(spaces_of(rank), rank.buffers(), 0); }
};

TEST_P(QuantizedOnRanks, TrainsAsOnOneRankInEveryScheme) {
  const std::vector<data::Batch> batches = uneven_batches(shape_, 4, 1);
  for (const Types& types : all_types) {
    for (const plan::Scheme scheme : all_schemes) {
      Training training{.type = types.weights, .master = types.master, .quantized = true};
      Rank alone{shape_, partition::Layout{}, 0, nobody_, training};
      training.scheme = scheme;
      Rank shared{shape_, topology_.layout(), topology_.canonical_rank(), *collectives_, training};
      const std::vector<double> initial = alone.weights();
      for (int step = 0; step < 3; ++step) {
        (void)alone.step(batches, 1e-3);
        (void)shared.step(batches, 1e-3);
      }
      // Gradients may differ in their last bit: where they are nothing else, as those of the biases of keys, Adam makes
      // steps of them, and a code may be the next one. Equal gradients give equal bits (unit.train).
      EXPECT_LT(distance(shared.weights(), alone.weights()), 0.01 * distance(initial, alone.weights()));
      EXPECT_LT(distance(state_of(shared), state_alone(alone)), 1e-4);
    }
  }
}

TEST_P(QuantizedOnRanks, StaysCloseToAdamW) {
  const std::vector<data::Batch> batches = uneven_batches(shape_, 4, 1);
  const auto rank_of = [&](bool quantized) {
    return Rank{shape_, topology_.layout(), topology_.canonical_rank(), *collectives_, {.quantized = quantized}};
  };
  Rank quantized = rank_of(true), exact = rank_of(false);
  const std::vector<double> initial = exact.weights();
  for (int step = 0; step < 20; ++step) {
    (void)quantized.step(batches, 1e-3);
    (void)exact.step(batches, 1e-3);
  }
  const double apart = distance(quantized.weights(), exact.weights()) / distance(initial, exact.weights());
  EXPECT_LT(apart, 0.1);
  EXPECT_GT(apart, 1e-3) << "the moments are in 8 bits";
}

TEST_P(QuantizedOnRanks, ACheckpointBringsItsStateToAnotherLayout) {
  const Training training{.quantized = true};
  SharedFolder folder;
  FaultyOs os;
  TestContext context{os, world(), GetParam()};
  Rank shared{shape_, topology_.layout(), topology_.canonical_rank(), *collectives_, training};
  for (std::uint64_t s = 0; s < 2; ++s) (void)shared.step(uneven_batches(shape_, 4, s), 1e-3);
  train::HostState host{shared.model(), shared.buffers(), at::kCPU};
  host.complete_copy();
  const std::vector<double> saved = state_of(shared);
  checkpoint::Store store{context.get(), folder / "run", {}};
  for (const auto kind : {checkpoint::Kind::temp, checkpoint::Kind::export_}) {
    const bool with_optimizer = kind == checkpoint::Kind::temp;
    const checkpoint::SaveReport report =
        store.save(kind, 2, host.states(with_optimizer), toy_sections(), toy_attachments());
    ASSERT_TRUE(report.committed) << report.why_not;
    const checkpoint::Reader reader{Files::system(), report.directory};
    EXPECT_EQ(reader.manifest().at("min_reader").at("minor"), with_optimizer ? 4 : 0);
    EXPECT_EQ(reader.manifest().at("format_version").at("minor"), with_optimizer ? 4 : 3);
    EXPECT_TRUE(reader.verify().finite);
  }
  const checkpoint::Reader reader{Files::system(), folder / "run/checkpoints/000000002"};
  Rank alone{shape_, partition::Layout{}, 0, nobody_, training};
  train::HostState other{alone.model(), alone.buffers(), at::kCPU};
  reader.read_state(other.states(), 0);
  other.load();
  EXPECT_EQ(state_alone(alone), saved);
  EXPECT_EQ(alone.weights(), shared.weights());
  // And back.
  Rank again{shape_, topology_.layout(), topology_.canonical_rank(), *collectives_, training};
  train::HostState restored{again.model(), again.buffers(), at::kCPU};
  reader.read_state(restored.states(), topology_.canonical_rank());
  restored.load();
  EXPECT_EQ(state_of(again), saved);
  // AdamW's moments are not there.
  Rank adamw{shape_, partition::Layout{}, 0, nobody_};
  train::HostState moments{adamw.model(), adamw.buffers(), at::kCPU};
  EXPECT_THROW(reader.read_state(moments.states(), 0), Error);
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, QuantizedOnRanks, testing::ValuesIn(hierarchies()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace argosy::test
