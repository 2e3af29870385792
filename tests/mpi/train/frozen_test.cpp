#include "mpi/train/rank.hpp"

/// Units that are not as others are: frozen ones next to trained ones, through buffers, steps, traffic and checkpoints;
/// and one that several visits read, which is gathered once and whose gradient is reduced after the last of them.
namespace argosy::test {
namespace {

class FrozenOnRanks : public OnRanks {
 protected:
  const spec::ModelSpec spec_ = with_adapters(small_shape());
};

TEST(Frozen, TheGradientOfAnAdapterIsTheSlopeOfTheLoss) {
  expect_slopes(with_adapters(small_shape()), {0, 40, 256, 300});
}

TEST_P(FrozenOnRanks, TrainTheRestAsOnOneRankInEveryScheme) {
  for (const auto& [type, master] : {all_types[0], all_types[1]}) {
    for (const plan::Scheme scheme : all_schemes) {
      for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block}) {
        const Training training{.scheme = scheme, .type = type, .master = master, .recompute = recompute};
        SCOPED_TRACE(fmt::format("scheme {}, {}", static_cast<int>(scheme), at::toString(type)));
        Rank alone{spec_, {.type = type, .master = master}};
        Rank shared = rank_of(spec_, training);
        const std::vector<double> initial = train_both(alone, shared, 3, 1e-2, type == at::kFloat ? 1e-5 : 1e-2);
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
    const std::vector<partition::FlatSpace> spaces = rank.spaces();
    std::int64_t trained = 0, complete = 0;  // elements
    const plan::PlanShape shape = plan::plan_shape(spec_, layout());
    for (std::size_t u = 0; u < spec_.units.size(); ++u) {
      (spec_.units[u].frozen ? complete : trained) +=
          shape.rotates[u] && plan::rotates_weights(scheme) ? 0 : spaces[u].padded_size();
    }
    EXPECT_EQ(most, static_cast<double>(rank.planned_bytes(2)));
    EXPECT_EQ(more_at_first, static_cast<double>(4 * complete * (layout().world() - 1))) << "gathered once";
    if (!plan::rotates_weights(scheme)) {
      EXPECT_LE(rank.planned_bytes(2), 2 * 4 * trained);
    }
  }
}

TEST_P(FrozenOnRanks, ACheckpointBringsThemToAnotherLayout) {
  Rank shared = rank_of(spec_);
  for (std::uint64_t s = 0; s < 2; ++s) (void)shared.step(uneven_batches(spec_.architecture, 4, s), 1e-3);
  RankStore store{GetParam()};
  const checkpoint::Reader saved = store.save(shared);
  Rank alone{spec_};
  for (const train::UnitBuffers& unit : alone.buffers().units()) unit.shard.master.zero_();
  load(alone, saved);
  EXPECT_EQ(alone.weights(), shared.weights());
  EXPECT_EQ(alone.first_moments(), shared.first_moments());
  const auto next = uneven_batches(spec_.architecture, 4, 9);
  EXPECT_NEAR(alone.step(next, 1e-3).loss_sum, shared.step(next, 1e-3).loss_sum, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, FrozenOnRanks, testing::ValuesIn(hierarchies()), by_name);

class SharedUnitOnRanks : public OnRanks {};

TEST(SharedUnit, GradientIsTheSlopeOfTheLoss) { expect_slopes(with_shared_bias(small_shape()), {0, 7, 31}); }

TEST_P(SharedUnitOnRanks, TrainsAsOnOneRankInEveryScheme) {
  const spec::ModelSpec spec = with_shared_bias(small_shape());
  for (const plan::Scheme scheme : all_schemes) {
    for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block}) {
      Rank alone{spec};
      Rank shared = rank_of(spec, {.scheme = scheme, .recompute = recompute});
      (void)train_both(alone, shared, 2, 1e-3, 1e-5);
      EXPECT_LT(distance(shared.gradient(), alone.gradient()), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, SharedUnitOnRanks, testing::ValuesIn(hierarchies()), by_name);

}  // namespace
}  // namespace argosy::test
