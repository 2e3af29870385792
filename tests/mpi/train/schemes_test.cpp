// Every sharding scheme trains alike: the bits where sums nest alike, what it sends, what it leaves unread.

#include "kernels/tensor_memory.hpp"
#include "mpi/train/late.hpp"
#include "mpi/train/rank.hpp"
#include "mpi/train/step_bytes.hpp"

namespace argosy::test {
namespace {

using plan::AccumulationOrder, plan::Scheme;

constexpr std::array orders{AccumulationOrder::depth_first, AccumulationOrder::breadth_first};

class SchemesOnRanks : public OnRanks {
 protected:
  /// Weights after `steps` steps; every buffer is full of NaN before each of them.
  std::vector<double> train(const Training& training, bool tied, int accumulation, std::uint64_t steps,
                            comm::Collectives& collectives) {
    const spec::Architecture shape = small_shape(0.1, tied);
    Rank rank{shape, layout(), me(), collectives, training};
    for (std::uint64_t s = 0; s < steps; ++s) {
      rank.poison();
      const auto result = rank.step(uneven_batches(shape, layout().world() * accumulation, s), 1e-3);
      EXPECT_FALSE(result.skipped) << text_of(training);
      EXPECT_GT(result.loss_sum, 0) << text_of(training);
    }
    return rank.weights();
  }
};

TEST_P(SchemesOnRanks, GiveTheSameBitsWhereSumsNestAlike) {
  struct Case {
    bool tied;
    AccumulationOrder order;
    Types types;
    std::uint64_t steps;
    comm::CollectivesOptions options;
  };
  const std::array cases{
      Case{true, AccumulationOrder::depth_first, {at::kFloat, at::kFloat}, 20, {.wire_outer = DType::bf16}},
      Case{true, AccumulationOrder::breadth_first, {at::kFloat, at::kFloat}, 3, {}},
      Case{false, AccumulationOrder::breadth_first, {at::kBFloat16, at::kFloat}, 3, {.wire_inner = DType::bf16}},
      Case{false, AccumulationOrder::depth_first, {at::kBFloat16, at::kBFloat16}, 3, {}}};
  for (const Case& each : cases) {
    const auto collectives = comm::make_mpi_collectives(topology_, each.options);
    Training training{.order = each.order, .type = each.types.weights, .master = each.types.master};
    training.optimizer.max_grad_norm = 0.1;  // clips: the schemes have to agree on the norm
    const int accumulation = each.order == AccumulationOrder::breadth_first ? 2 : 1;
    std::vector<double> expected;
    for (const Scheme scheme : all_schemes) {
      training.scheme = scheme;
      const std::vector<double> weights = train(training, each.tied, accumulation, each.steps, *collectives);
      if (scheme == Scheme::stage_1) expected = weights;
      EXPECT_TRUE(weights == expected) << text_of(training);
    }
  }
}

TEST_P(SchemesOnRanks, ComputeBesideLateCollectivesToTheSameBits) {
  if (GetParam() != Hierarchy::flat && GetParam() != Hierarchy::uneven) return;
  for (const Scheme scheme : all_schemes) {
    for (const AccumulationOrder order : orders) {
      const Training training{.scheme = scheme, .order = order};
      const std::vector<double> expected = train(training, false, 2, 2, *collectives_);
      const auto inner = comm::make_mpi_collectives(topology_);
      Late late{topology_, *inner};
      EXPECT_TRUE(train(training, false, 2, 2, late) == expected) << text_of(training);
    }
  }
}

TEST_P(SchemesOnRanks, AgreeToRoundingWhereSumsNestDifferently) {
  optim::OptimizerConfig optimizer;
  optimizer.epsilon = 1e-4;  // above the rounding errors of gradients that are zero
  const auto gradient = [&](Scheme scheme) {
    const spec::Architecture shape = small_shape(0.1, false);
    Rank rank = rank_of(shape, {.scheme = scheme, .optimizer = optimizer});
    rank.poison();
    (void)rank.step(uneven_batches(shape, layout().world() * 4, 1), 1e-3);
    return rank.gradient();
  };
  const std::vector<double> one = gradient(Scheme::stage_1), two = gradient(Scheme::stage_2);
  EXPECT_LT(distance(two, one), 1e-6);
  EXPECT_LT(distance(gradient(Scheme::hybrid), one), 1e-6);
  EXPECT_TRUE(gradient(Scheme::stage_3) == two) << "both add up (micro-batch (node (rank)))";
}

TEST_P(SchemesOnRanks, ElasticSumsDoNotShowTheStage) {
  const auto elastic = comm::make_mpi_collectives(topology_, {.reduction = comm::Reduction::elastic});
  const auto weights = [&](Scheme scheme) {
    return train({.scheme = scheme, .reduce_every = plan::ReduceEvery::micro_batch}, true, 3, 3, *elastic);
  };
  const std::vector<double> expected = weights(Scheme::stage_1);
  EXPECT_TRUE(weights(Scheme::stage_2) == expected);
  EXPECT_TRUE(weights(Scheme::stage_3) == expected);
}

TEST_P(SchemesOnRanks, ComputingAgainGivesTheSameBits) {
  if (GetParam() != Hierarchy::uneven) return;  // how ranks lie has no part in it
  for (const Scheme scheme : all_schemes) {
    for (const AccumulationOrder order : orders) {
      const Training kept{.scheme = scheme, .order = order};
      const std::vector<double> expected = train(kept, true, 2, 2, *collectives_);
      for (const auto level : {plan::Recompute::activation, plan::Recompute::full, plan::Recompute::block}) {
        Training again = kept;
        again.recompute = level;
        EXPECT_TRUE(train(again, true, 2, 2, *collectives_) == expected)
            << text_of(kept) << " " << boost::describe::enum_to_string(level, "");
      }
    }
  }
}

TEST_P(SchemesOnRanks, EvaluateTheSameModel) {
  const spec::Architecture shape = small_shape(0.1, false);
  double expected = 0;
  for (const Scheme scheme : all_schemes) {
    Rank rank = rank_of(shape, {.scheme = scheme});
    (void)rank.step(uneven_batches(shape, layout().world(), 1), 1e-2);
    rank.poison();
    // The last rank has one batch fewer and joins with an empty one.
    const bool last = layout().world() > 1 && me() + 1 == layout().world();
    const double nll =
        rank.evaluate(copy_batch(shape, static_cast<std::uint64_t>(me()), 3)) +
        rank.evaluate(last ? data::Batch{} : copy_batch(shape, 50 + static_cast<std::uint64_t>(me()), 2));
    if (scheme == Scheme::stage_1) expected = nll;
    EXPECT_EQ(nll, expected) << boost::describe::enum_to_string(scheme, "");
  }
  EXPECT_GT(expected, 1);
}

TEST_P(SchemesOnRanks, HoldTheSameMemoryInTheHundredthStepAsInTheFifth) {
  if (GetParam() != Hierarchy::two_nodes) return;  // the others allocate alike
  kernels::keep_tensor_memory();
  const spec::Architecture shape = small_shape(0.1);
  for (const Scheme scheme : {Scheme::stage_1, Scheme::hybrid}) {
    Rank rank = rank_of(shape, {.scheme = scheme, .recompute = plan::Recompute::block});
    const std::vector<data::Batch> batches = uneven_batches(shape, layout().world(), 1);
    kernels::MemoryCount of_fifth;
    for (int s = 1; s <= 100; ++s) {
      kernels::reset_peak(c10::kCPU);
      (void)rank.step(batches, 1e-3);
      const kernels::MemoryCount memory = kernels::memory_of(c10::kCPU);
      if (s == 5) of_fifth = memory;
      if (s < 5) continue;
      ASSERT_EQ(memory.bytes, of_fifth.bytes) << "step " << s;
      ASSERT_EQ(memory.peak_bytes, of_fifth.peak_bytes) << "step " << s;
    }
    EXPECT_GT(of_fifth.peak_bytes, of_fifth.bytes);
  }
}

TEST_P(SchemesOnRanks, SendWhatTheFormulasSay) {
  for (const bool tied : {true, false}) {
    const spec::Architecture shape = small_shape(0, tied);
    const plan::PlanShape units = plan::plan_shape(shape, layout());
    for (const Scheme scheme : all_schemes) {
      for (const AccumulationOrder order : orders) {
        constexpr int accumulation = 3;
        const Training training{.scheme = scheme, .order = order};
        SCOPED_TRACE(text_of(training));
        const auto collectives = comm::make_mpi_collectives(topology_);
        Rank rank{shape, layout(), me(), *collectives, training};
        (void)rank.step(uneven_batches(shape, layout().world() * accumulation, 1), 1e-3);
        const StepBytes sent = bytes_by_formula(rank, units, training, accumulation, [&](std::size_t) { return me(); });
        const auto& counted = collectives->traffic().by_operation;
        EXPECT_EQ(counted.at("scalar").calls, 1);
        EXPECT_EQ(counted.contains("all_gather"), layout().world() > 1);
        EXPECT_TRUE(layout().world() > 1 || scheme != Scheme::stage_1 || !counted.contains("reduce_scatter"));
        if (layout().world() == 1) continue;
        EXPECT_EQ(StepBytes::counted(*collectives), sent);
      }
    }
  }
}

TEST(Placement, InTurnsGivesTheBitsOfBlockByBlock) {
  if (world().size() < 2) return;
  const comm::Topology &blocks = topology(Hierarchy::two_nodes), &turns = topology(Hierarchy::cyclic);
  if (!(blocks.layout() == turns.layout())) return;
  const spec::Architecture shape = small_shape();
  for (const Scheme scheme : all_schemes) {
    std::array<std::vector<double>, 2> weights;
    for (std::size_t i = 0; const comm::Topology* each : {&blocks, &turns}) {
      const auto collectives = comm::make_mpi_collectives(*each);
      Rank rank{shape, each->layout(), each->canonical_rank(), *collectives, {.scheme = scheme}};
      for (std::uint64_t s = 0; s < 5; ++s) (void)rank.step(uneven_batches(shape, each->world_size(), s), 1e-3);
      weights[i++] = rank.weights();
    }
    EXPECT_TRUE(weights[0] == weights[1]) << boost::describe::enum_to_string(scheme, "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, SchemesOnRanks,
                         testing::Values(Hierarchy::flat, Hierarchy::two_nodes, Hierarchy::uneven, Hierarchy::cyclic,
                                         Hierarchy::three_nodes),
                         by_name);

}  // namespace
}  // namespace argosy::test
