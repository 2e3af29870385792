#include <limits>
#include <numeric>

#include "mpi/train/rank.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using train::StepResult;

/// Plants a NaN in the gradients of one rank in chosen steps.
class PlantedNan final : public RecordingCollectives {
 public:
  PlantedNan(const comm::Topology& ranks, comm::Collectives& inner, int where, std::int64_t first, std::int64_t last)
      : RecordingCollectives(ranks.layout(), ranks.canonical_rank(), &inner),
        here_(ranks.canonical_rank() == where),
        first_(first),
        last_(last) {}
  comm::Event reduce_scatter(const partition::FlatSpace& space, comm::BufferView flat, comm::BufferView shard,
                             comm::Event ready, comm::ReduceCall call) override {
    if (here_ && step() >= first_ && step() <= last_)
      reinterpret_cast<float*>(flat.at)[space.offset(0)] = std::numeric_limits<float>::quiet_NaN();
    return RecordingCollectives::reduce_scatter(space, flat, shard, std::move(ready), call);
  }

 private:
  bool here_;
  std::int64_t first_, last_;
};

/// Of four micro-batches of 1, 2, 5 and 10 rows: no mean of means is the mean.
Rows growing_rows(const spec::Architecture& shape, std::uint64_t j, std::uint64_t first_stream) {
  return copy_rows(shape, first_stream + j, 1 + static_cast<std::int64_t>(j * j));
}

class RunnerOnRanks : public OnRanks {};

TEST_P(RunnerOnRanks, AStepIsTheSameHoweverItsMicroBatchesAreDealt) {
  spec::Architecture shape = small_shape(0.1);
  shape.neftune_alpha = 5;
  // The bias of keys has no gradient but rounding errors, which Adam would blow up to full steps: an epsilon above
  // them.
  optim::OptimizerConfig optimizer;
  optimizer.epsilon = 1e-4;
  Rank alone{shape, {.optimizer = optimizer}};
  Rank shared = rank_of(shape, {.optimizer = optimizer});
  const std::vector<double> initial = alone.weights();
  for (std::uint64_t s = 0; s < 4; ++s) {
    std::vector<data::Batch> micro_batches;
    for (std::uint64_t j = 0; j < 4; ++j) micro_batches.push_back(batch_of(shape, growing_rows(shape, j, 10 * s)));
    const StepResult one = alone.step(micro_batches, 1e-3), many = shared.step(micro_batches, 1e-3);
    EXPECT_NEAR(one.loss_sum, many.loss_sum, 1e-6 * one.loss_sum) << s;
    EXPECT_NEAR(one.nll_sum, many.nll_sum, 1e-6 * one.nll_sum) << s;
    EXPECT_NEAR(one.grad_norm, many.grad_norm, 2e-6 * one.grad_norm) << s;
    EXPECT_EQ(one.work.target_positions, many.work.target_positions);
    EXPECT_GT(one.grad_norm, 0);
  }
  const std::vector<double> a = alone.weights(), b = shared.weights();
  EXPECT_LT(distance(b, a), 1e-5 * distance(initial, a));
}

TEST_P(RunnerOnRanks, ElasticSumsGiveTheBitsOfOneRank) {
  const spec::Architecture shape = small_shape(0.1);
  const comm::CollectivesOptions elastic{.reduction = comm::Reduction::elastic};
  const comm::Topology single = comm::Topology::discover(world().split(world().rank(), 0), "alone");
  const auto one_rank = comm::make_mpi_collectives(single, elastic),
             ranks = comm::make_mpi_collectives(topology_, elastic);
  optim::OptimizerConfig optimizer;
  optimizer.max_grad_norm = 0.1;  // clips: the norm is the same too
  for (const auto& [type, master] : all_types) {
    optimizer.ema = master == at::kFloat ? 0.9 : 0;
    const Training training{
        .reduce_every = plan::ReduceEvery::micro_batch, .type = type, .master = master, .optimizer = optimizer};
    Rank alone{shape, single.layout(), 0, *one_rank, training};
    Rank shared{shape, layout(), me(), *ranks, training};
    const std::vector<double> initial = alone.weights();
    for (std::uint64_t s = 0; s < 3; ++s) {
      const std::vector<data::Batch> twelve = uneven_batches(shape, 12, s);  // 1, 2, 3 and 4 ranks share them evenly
      const StepResult one = alone.step(twelve, 1e-3), many = shared.step(twelve, 1e-3);
      EXPECT_EQ(one.grad_norm, many.grad_norm) << s;
      EXPECT_TRUE(one.clipped);
    }
    EXPECT_TRUE(alone.weights() == shared.weights());
    EXPECT_FALSE(alone.weights() == initial);
    if (optimizer.ema == 0) continue;
    EXPECT_TRUE(alone.ema() == shared.ema());
    EXPECT_LT(distance(shared.ema(), shared.weights()), distance(initial, shared.weights())) << "on its way";
    EXPECT_FALSE(shared.ema() == shared.weights());
  }
}

TEST(Runner, WeightsWithoutMasterLearnAndStayNarrow) {
  const comm::Topology& ranks = topology(Hierarchy::flat);
  const auto collectives = comm::make_mpi_collectives(ranks);
  const spec::Architecture shape = small_shape();
  Rank rank{
      shape, ranks.layout(), ranks.canonical_rank(), *collectives, {.type = at::kBFloat16, .master = at::kBFloat16}};
  const data::Batch held_out = copy_batch(shape, 999, 8);
  const double before = rank.evaluate(held_out);
  for (std::uint64_t s = 0; s < 60; ++s) (void)rank.step(uneven_batches(shape, 4, s), 3e-3);
  EXPECT_LT(rank.evaluate(held_out), 0.7 * before);
  // What a checkpoint holds is fp32, and loses nothing on the way back.
  std::vector<at::Tensor> masters;
  for (const train::UnitBuffers& unit : rank.buffers().units()) {
    EXPECT_EQ(unit.shard.master.scalar_type(), at::kBFloat16);
    EXPECT_EQ(unit.shard.states.back().numbers.scalar_type(), at::kFloat);
    masters.push_back(unit.shard.master.clone());
  }
  train::HostState host{rank.model(), rank.buffers(), at::kCPU};
  host.begin_copy();
  host.complete_copy();
  const auto states = host.states();
  for (const train::UnitBuffers& unit : rank.buffers().units()) unit.shard.master.zero_();
  host.load();
  for (std::size_t u = 0; u < masters.size(); ++u) {
    EXPECT_EQ(states[u].tensor("master").size(), static_cast<std::size_t>(masters[u].numel()));
    EXPECT_TRUE(rank.buffers().units()[u].shard.master.equal(masters[u]));
  }
}

TEST_P(RunnerOnRanks, WhatACheckpointHoldsStandsStillUntilTheUpdate) {
  const spec::Architecture shape = small_shape();
  for (const Types& types : all_types) {
    for (const plan::Scheme scheme : {plan::Scheme::stage_1, plan::Scheme::stage_2, plan::Scheme::stage_3}) {
      optim::OptimizerConfig optimizer;
      optimizer.ema = types.master == at::kFloat ? 0.9 : 0;
      Rank rank =
          rank_of(shape, {.scheme = scheme, .type = types.weights, .master = types.master, .optimizer = optimizer});
      train::HostState host{rank.model(), rank.buffers(), at::kCPU};
      const auto state = [&] {
        host.complete_copy();
        std::vector<float> all;
        for (const checkpoint::UnitState& unit : host.states()) {
          EXPECT_EQ(unit.tensor("ema").empty(), optimizer.ema == 0);
          for (const checkpoint::TensorShard& tensor : unit.tensors)
            all.insert(all.end(), tensor.values().begin(), tensor.values().end());
        }
        return all;
      };
      (void)rank.step(uneven_batches(shape, 4, 0), 3e-3);
      const std::vector<float> before = state();
      int calls = 0;
      rank.before_update = [&] {
        ++calls;
        EXPECT_EQ(state(), before);
      };
      (void)rank.step(uneven_batches(shape, 4, 1), 3e-3);
      EXPECT_EQ(calls, 1);
      EXPECT_NE(state(), before);
    }
  }
}

TEST_P(RunnerOnRanks, FourUnevenMicroBatchesAreOneMergedBatch) {
  const spec::Architecture shape = small_shape();
  Rank alone{shape};
  Rank shared = rank_of(shape);
  std::vector<data::Batch> micro_batches;
  Rows all;
  for (std::uint64_t j = 0; j < 4; ++j) {
    const Rows rows = growing_rows(shape, j, 0);
    micro_batches.push_back(batch_of(shape, rows));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  const data::Batch together = batch_of(shape, all);
  const StepResult one = alone.step({together}, 1e-3), four = shared.step(micro_batches, 1e-3);
  EXPECT_NEAR(one.loss_sum, four.loss_sum, 1e-6 * one.loss_sum);
  EXPECT_NEAR(one.grad_norm, four.grad_norm, 1e-6 * one.grad_norm);
  const std::vector<double> a = alone.gradient(), b = shared.gradient();
  ASSERT_EQ(a.size(), b.size());
  EXPECT_NEAR(norm_of(a), one.grad_norm, 1e-6 * one.grad_norm);
  EXPECT_LT(distance(b, a), 1e-6);
  EXPECT_GT(norm_of(a) * static_cast<double>(together.tgt_tokens), 1.0) << "a mean over tgt_tokens";
}

TEST_P(RunnerOnRanks, LossFallsOnACopyTask) {
  if (GetParam() != Hierarchy::flat) return;  // how ranks lie changes no bit of it
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const spec::Architecture shape = small_shape();
    Rank rank = rank_of(shape, {.type = type});
    double first = 0, last = 0;
    for (std::uint64_t s = 0; s < 40; ++s) {
      std::vector<data::Batch> micro_batches;
      std::int64_t tgt_tokens = 0;
      for (std::uint64_t j = 0; j < 4; ++j) {
        micro_batches.push_back(copy_batch(shape, 4 * s + j, 6));
        tgt_tokens += micro_batches.back().tgt_tokens;
      }
      last = rank.step(micro_batches, 5e-3).nll_sum / static_cast<double>(tgt_tokens);
      if (s == 0) first = last;
    }
    EXPECT_GT(first, 2.5);
    EXPECT_LT(last, 0.7 * first);
  }
}

TEST_P(RunnerOnRanks, ANanInTheGradientOfOneRankSkipsTheStepOnAll) {
  for (const plan::Scheme scheme : all_schemes) {
    for (const auto reduce_every : {plan::ReduceEvery::step, plan::ReduceEvery::micro_batch}) {
      if (scheme == plan::Scheme::hybrid && reduce_every == plan::ReduceEvery::micro_batch) continue;
      const spec::Architecture shape = small_shape();
      PlantedNan planted{topology_, *collectives_, layout().world() - 1, 2, 2};
      Rank rank{shape, layout(), me(), planted, {.scheme = scheme, .reduce_every = reduce_every}};
      if (layout().world() == 1 && rank.buffers().units()[0].sums_in_place) continue;  // there is no sum to plant it in
      const std::vector<data::Batch> micro_batches{copy_batch(shape, 1, 3), copy_batch(shape, 2, 3)};
      EXPECT_FALSE(rank.step(micro_batches, 1e-3).skipped);
      const std::vector<double> before = rank.weights();
      EXPECT_TRUE(rank.step(micro_batches, 1e-3).skipped);
      EXPECT_TRUE(std::ranges::any_of(planted.calls(), [](const RecordingCollectives::Call& call) {
        return call.step == 2 && call.operation == "reduce_scatter";
      }));
      EXPECT_TRUE(rank.weights() == before);
      const StepResult next = rank.step(micro_batches, 1e-3);
      EXPECT_FALSE(next.skipped);
      EXPECT_TRUE(std::isfinite(next.loss_sum));
      EXPECT_FALSE(rank.weights() == before);
    }
  }
}

TEST_P(RunnerOnRanks, ClippingKeepsTheDirectionOfTheWholeGradient) {
  const spec::Architecture shape = small_shape();
  for (const plan::Scheme scheme : {plan::Scheme::stage_1, plan::Scheme::stage_3}) {
    optim::OptimizerConfig optimizer;
    optimizer.max_grad_norm = 0.05;
    Rank rank = rank_of(shape, {.scheme = scheme, .optimizer = optimizer});
    EXPECT_TRUE(rank.step(uneven_batches(shape, 12, 1), 1e-3).clipped);
    const std::vector<double> gradient = rank.gradient(), moments = rank.first_moments();
    const double coefficient = 0.05 / (norm_of(gradient) + 1e-6);
    EXPECT_LT(coefficient, 0.9);
    for (std::size_t i = 0; i < gradient.size(); ++i)
      ASSERT_NEAR(moments[i], 0.1 * coefficient * gradient[i], 1e-6 * std::abs(gradient[i])) << i;
  }
}

TEST_P(RunnerOnRanks, TooManySkippedStepsInARowEndTheRun) {
  const spec::Architecture shape = small_shape();
  PlantedNan planted{topology_, *collectives_, 0, 1, 100};
  const Training training{.reduce_every = plan::ReduceEvery::micro_batch,  // once a step, one rank sums in place
                          .optimizer = {.skip = {.max_consecutive = 3}}};
  Rank rank{shape, layout(), me(), planted, training};
  const std::vector<data::Batch> micro_batches{copy_batch(shape, 1, 3)};
  EXPECT_TRUE(rank.step(micro_batches, 1e-3).skipped);
  EXPECT_TRUE(rank.step(micro_batches, 1e-3).skipped);
  EXPECT_EQ(error_of([&] { (void)rank.step(micro_batches, 1e-3); }).fault(), Fault::numeric);
}

INSTANTIATE_TEST_SUITE_P(All, RunnerOnRanks, testing::Values(Hierarchy::flat, Hierarchy::uneven), by_name);

}  // namespace
}  // namespace argosy::test
