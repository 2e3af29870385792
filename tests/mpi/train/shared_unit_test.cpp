#include "mpi/train/rank.hpp"
#include "support/recording.hpp"

/// A unit that several visits read is gathered once, and its gradient is reduced after the last of them.
namespace argosy::test {
namespace {

class SharedUnitOnRanks : public testing::TestWithParam<Hierarchy> {};

TEST(SharedUnit, GradientIsTheSlopeOfTheLoss) { expect_slopes(with_shared_bias(small_shape()), {0, 7, 31}); }

TEST_P(SharedUnitOnRanks, TrainsAsOnOneRankInEveryScheme) {
  const comm::Topology& ranks = topology(GetParam());
  const auto collectives = comm::make_mpi_collectives(ranks);
  RecordingCollectives nobody{partition::Layout{}, 0};
  const spec::ModelSpec spec = with_shared_bias(small_shape());
  const auto batches = uneven_batches(spec.architecture, 4, 1);
  for (const plan::Scheme scheme : all_schemes) {
    for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block}) {
      const Training training{.scheme = scheme, .recompute = recompute};
      Rank alone{spec, partition::Layout{}, 0, nobody, {}};
      Rank shared{spec, ranks.layout(), ranks.canonical_rank(), *collectives, training};
      for (int step = 0; step < 2; ++step) {
        if (step > 0) shared.poison();
        const train::StepResult one = alone.step(batches, 1e-3), many = shared.step(batches, 1e-3);
        EXPECT_NEAR(one.loss_sum, many.loss_sum, 1e-5 * one.loss_sum);
      }
      EXPECT_LT(distance(shared.gradient(), alone.gradient()), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, SharedUnitOnRanks, testing::ValuesIn(hierarchies()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace argosy::test
