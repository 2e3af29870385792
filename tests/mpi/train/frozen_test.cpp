#include "core/file.hpp"
#include "mpi/train/rank.hpp"
#include "plan/traffic_model.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/recording.hpp"
#include "support/shared_folder.hpp"
#include "train/host_state.hpp"

/// Frozen units next to trained ones: through buffers, steps, traffic and checkpoints.
namespace argosy::test {
namespace {

class FrozenOnRanks : public OnRanks {
 protected:
  RecordingCollectives nobody_{partition::Layout{}, 0};
  const spec::ModelSpec spec_ = with_adapters(small_shape());
};

TEST(Frozen, TheGradientOfAnAdapterIsTheSlopeOfTheLoss) {
  expect_slopes(with_adapters(small_shape()), {0, 40, 256, 300});
}

TEST_P(FrozenOnRanks, TrainTheRestAsOnOneRankInEveryScheme) {
  const auto batches = uneven_batches(spec_.architecture, 4, 1);
  for (const auto& [type, master] : {all_types[0], all_types[1]}) {
    for (const plan::Scheme scheme : all_schemes) {
      for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block}) {
        const Training training{.scheme = scheme, .type = type, .master = master, .recompute = recompute};
        SCOPED_TRACE(fmt::format("scheme {}, {}", static_cast<int>(scheme), at::toString(type)));
        Rank alone{spec_, partition::Layout{}, 0, nobody_, {.type = type, .master = master}};
        Rank shared{spec_, layout(), me(), *collectives_, training};
        const std::vector<double> initial = shared.weights();
        for (int step = 0; step < 3; ++step) {
          if (step > 0) shared.poison();
          const train::StepResult one = alone.step(batches, 1e-2), many = shared.step(batches, 1e-2);
          const double bound = type == at::kFloat ? 1e-5 : 1e-2;
          EXPECT_NEAR(one.loss_sum, many.loss_sum, bound * one.loss_sum);
          EXPECT_NEAR(one.grad_norm, many.grad_norm, 100 * bound * one.grad_norm);
        }
        EXPECT_LT(distance(shared.gradient(), alone.gradient()), type == at::kFloat ? 1e-3 : 0.1);
        const std::vector<double> trained = shared.weights();
        std::ptrdiff_t frozen = 0;  // elements; adapters are the last units
        for (std::size_t u = 0; u < spec_.units.size(); ++u)
          frozen += spec_.units[u].frozen ? shared.model().units()[u].space().parameters() : 0;
        EXPECT_TRUE(std::equal(initial.begin(), initial.begin() + frozen, trained.begin()));
        EXPECT_GT(distance({initial.begin() + frozen, initial.end()}, {trained.begin() + frozen, trained.end()}), 1e-3);
      }
    }
  }
}

TEST_P(FrozenOnRanks, SendNothingButGathersOfWhatRotates) {
  for (const plan::Scheme scheme : all_schemes) {
    const auto collectives = comm::make_mpi_collectives(topology_);
    Rank rank{spec_, layout(), me(), *collectives, {.scheme = scheme}};
    const auto batches = uneven_batches(spec_.architecture, 2 * layout().world(), 1);
    (void)rank.step(batches, 1e-3);
    const std::vector<double> first = sent_by_rank(*collectives);
    (void)rank.step(batches, 1e-3);
    const std::vector<double> both = sent_by_rank(*collectives);
    double most = 0, more_at_first = 0;
    for (std::size_t r = 0; r < first.size(); ++r) {
      most = std::max(most, both[r] - first[r]);
      more_at_first += first[r] - (both[r] - first[r]);
    }
    std::vector<partition::FlatSpace> spaces;
    std::int64_t trained = 0, complete = 0;  // elements
    const plan::PlanShape shape = plan::plan_shape(spec_, layout());
    for (std::size_t u = 0; u < spec_.units.size(); ++u) {
      spaces.push_back(rank.model().units()[u].space());
      (spec_.units[u].frozen ? complete : trained) +=
          shape.rotates[u] && plan::rotates_weights(scheme) ? 0 : spaces.back().padded_size();
    }
    const plan::StepTraffic planned =
        plan::planned_traffic(rank.plan(2), spaces, {.weight = 4}, comm::Reduction::exact);
    EXPECT_EQ(most, static_cast<double>(planned.rank()));
    EXPECT_EQ(more_at_first, static_cast<double>(4 * complete * (layout().world() - 1))) << "gathered once";
    if (!plan::rotates_weights(scheme)) {
      EXPECT_LE(planned.rank(), 2 * 4 * trained);
    }
  }
}

TEST_P(FrozenOnRanks, ACheckpointBringsThemToAnotherLayout) {
  SharedFolder folder;
  FaultyOs os;
  TestContext context{os, world(), GetParam()};
  Rank shared{spec_, layout(), me(), *collectives_};
  for (std::uint64_t s = 0; s < 2; ++s) (void)shared.step(uneven_batches(spec_.architecture, 4, s), 1e-3);
  train::HostState host{shared.model(), shared.buffers(), at::kCPU};
  host.complete_copy();
  checkpoint::Store store{context.get(), folder / "run", {}};
  const checkpoint::SaveReport report =
      store.save(checkpoint::Kind::temp, 2, host.states(), toy_sections(), toy_attachments());
  ASSERT_TRUE(report.committed) << report.why_not;
  Rank alone{spec_, partition::Layout{}, 0, nobody_};
  for (const train::UnitBuffers& unit : alone.buffers().units()) unit.shard.master.zero_();
  train::HostState other{alone.model(), alone.buffers(), at::kCPU};
  checkpoint::Reader(Files::system(), report.directory).read_state(other.states(), 0);
  other.load();
  EXPECT_EQ(alone.weights(), shared.weights());
  EXPECT_EQ(alone.first_moments(), shared.first_moments());
  const auto next = uneven_batches(spec_.architecture, 4, 9);
  EXPECT_NEAR(alone.step(next, 1e-3).loss_sum, shared.step(next, 1e-3).loss_sum, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, FrozenOnRanks, testing::ValuesIn(hierarchies()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace argosy::test
