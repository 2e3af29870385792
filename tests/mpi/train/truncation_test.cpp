#include <ATen/core/grad_mode.h>

#include <cmath>

#include "mpi/train/material.hpp"
#include "mpi/train/rank.hpp"
#include "support/refusal.hpp"

/// Steps in which tokens leave the loss by their error norm.
namespace argosy::test {
namespace {

using train::StepResult;

constexpr double threshold = 1.04;  // with random weights, some tokens are above it

/// The batch without the labels that the threshold removes, as the model has it now: each label is tried alone.
data::Batch kept_of(model::Model& model, const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  data::Batch kept = batch;
  for (std::size_t i = 0; i < batch.target_labels.size(); ++i) {
    if (batch.target_labels[i] < 0) continue;
    data::Batch one = batch;
    std::fill(one.target_labels.begin(), one.target_labels.end(), data::no_label);
    one.target_labels[i] = batch.target_labels[i];
    model::Pass pass;
    pass.loss.error_norm_truncation = threshold;
    model::State state;
    const model::Inputs inputs = train::inputs_of(one, c10::kCPU);
    for (const model::Visit& visit : model.visits()) state = visit.forward(state, inputs, pass);
    if (pass.truncated_count.item<double>() == 0) continue;
    kept.target_labels[i] = data::no_label;
    --kept.tgt_tokens;
  }
  return kept;
}

class TruncationOnRanks : public OnRanks {};

TEST_P(TruncationOnRanks, AStepIsThatOfTheKeptTokensAlone) {
  const spec::Architecture shape = small_shape(0, true, false);
  for (const optim::OptimizerType type :
       {optim::OptimizerType::adamw, optim::OptimizerType::adafactor, optim::OptimizerType::muon}) {
    for (const double max_norm : {0.0, 0.5}) {
      optim::OptimizerConfig optimizer{.type = type};
      if (type != optim::OptimizerType::adafactor) optimizer.epsilon = 1e-3;  // so that Adam sees the scale
      optimizer.max_grad_norm = max_norm;
      Rank alone{shape, {.optimizer = optimizer}};
      Rank shared = rank_of(
          shape, {.optimizer = optimizer, .loss = {.label_smoothing = 0.1, .error_norm_truncation = threshold}});
      const std::vector<double> initial = alone.weights();
      for (std::uint64_t s = 0; s < 3; ++s) {
        const std::vector<data::Batch> all = uneven_batches(shape, 4, s);
        std::vector<data::Batch> kept;
        std::int64_t truncated = 0, kept_tokens = 0;
        for (const data::Batch& batch : all) {
          kept.push_back(batch.empty() ? batch : kept_of(alone.model(), batch));
          truncated += batch.tgt_tokens - kept.back().tgt_tokens;
          kept_tokens += kept.back().tgt_tokens;
        }
        const StepResult expected = alone.step(kept, 1e-2), got = shared.step(all, 1e-2);
        EXPECT_EQ(got.truncated_tokens, static_cast<double>(truncated));
        EXPECT_GT(truncated, 0);
        EXPECT_GT(kept_tokens, truncated / 4);
        EXPECT_NEAR(got.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
        EXPECT_NEAR(got.loss_sum, expected.loss_sum, 1e-5 * expected.loss_sum);
        EXPECT_GT(got.nll_sum, expected.nll_sum * 1.05) << "of all tokens";
        EXPECT_EQ(got.clipped, max_norm > 0);
        EXPECT_FALSE(got.skipped);
      }
      const std::vector<double> a = alone.weights(), b = shared.weights();
      EXPECT_LT(distance(b, a), 1e-3 * distance(initial, a));
    }
  }
}

TEST_P(TruncationOnRanks, TheRootOfTwoChangesNoBit) {
  const spec::Architecture shape = small_shape(0.1);
  Rank off = rank_of(shape), on = rank_of(shape, {.loss = {.label_smoothing = 0.1, .error_norm_truncation = 1.5}});
  for (std::uint64_t s = 0; s < 3; ++s) {
    const StepResult a = off.step(uneven_batches(shape, 4, s), 1e-3), b = on.step(uneven_batches(shape, 4, s), 1e-3);
    EXPECT_EQ(b.truncated_tokens, 0);
    EXPECT_EQ(std::tuple(a.grad_norm, a.loss_sum, a.nll_sum), std::tuple(b.grad_norm, b.loss_sum, b.nll_sum));
  }
  EXPECT_TRUE(off.weights() == on.weights());
}

TEST_P(TruncationOnRanks, ElasticSumsGiveTheBitsOfOneRank) {
  const spec::Architecture shape = small_shape();
  const comm::CollectivesOptions elastic{.reduction = comm::Reduction::elastic};
  const comm::Topology single = comm::Topology::discover(world().split(world().rank(), 0), "alone");
  const auto one_rank = comm::make_mpi_collectives(single, elastic),
             ranks = comm::make_mpi_collectives(topology_, elastic);
  const test::Training training{.reduce_every = plan::ReduceEvery::micro_batch,  // not the tests of that name
                                .loss = {.label_smoothing = 0.1, .error_norm_truncation = threshold}};
  Rank alone{shape, single.layout(), 0, *one_rank, training};
  Rank shared{shape, layout(), me(), *ranks, training};
  for (std::uint64_t s = 0; s < 3; ++s) {
    const std::vector<data::Batch> twelve = uneven_batches(shape, 12, s);
    const StepResult one = alone.step(twelve, 1e-3), many = shared.step(twelve, 1e-3);
    EXPECT_EQ(one.grad_norm, many.grad_norm);
    EXPECT_EQ(one.truncated_tokens, many.truncated_tokens);
    EXPECT_GT(one.truncated_tokens, 0);
  }
  EXPECT_TRUE(alone.weights() == shared.weights());
}

TEST_P(TruncationOnRanks, AStepThatKeepsNoTokenIsSkipped) {
  const spec::Architecture shape = small_shape();
  optim::OptimizerConfig optimizer;
  optimizer.skip.max_consecutive = 2;
  Rank rank = rank_of(shape, {.optimizer = optimizer, .loss = {.error_norm_truncation = 0.1}});
  const std::vector<double> before = rank.weights();
  const std::vector<data::Batch> batches = uneven_batches(shape, 4, 0);
  const StepResult result = rank.step(batches, 1e-3);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.grad_norm, 0);
  double tgt_tokens = 0;
  for (const data::Batch& batch : batches) tgt_tokens += static_cast<double>(batch.tgt_tokens);
  EXPECT_EQ(result.truncated_tokens, tgt_tokens);
  EXPECT_TRUE(rank.weights() == before);
  EXPECT_TRUE(says(refusal(Fault::numeric, [&] { (void)rank.step(batches, 1e-3); }), "removed all tokens"));
}

INSTANTIATE_TEST_SUITE_P(All, TruncationOnRanks, testing::Values(Hierarchy::flat, Hierarchy::uneven), by_name);

TEST(Truncation, IsReportedAndLeavesValidationAlone) {
  const SharedFolder folder;
  plan::RunConfig config = Material::get().config(folder / "run");
  config.schedule.lr = 1e-12;
  config.schedule.length.count = 3;
  const auto lines_of_run = [&](double truncation, std::int64_t after = 0) {
    config.run_dir = (folder / fmt::format("{} after {}", truncation, after)).string();
    config.loss.error_norm_truncation = truncation;
    config.loss.error_norm_truncation_after = after;
    (void)train_run(config);
    return metrics_lines(config.run_dir);
  };
  const auto off = lines_of_run(0), on = lines_of_run(1.005);
  ASSERT_EQ(off.size(), on.size());
  for (std::size_t i = 0; i < on.size(); ++i) {
    if (on[i].contains("validation")) {
      EXPECT_NEAR(on[i].at("figures").at("loss").to_number<double>(),
                  off[i].at("figures").at("loss").to_number<double>(), 1e-6);
      continue;
    }
    EXPECT_EQ(off[i].at("truncated_frac").to_number<double>(), 0);
    EXPECT_GT(on[i].at("truncated_frac").to_number<double>(), 0);
    EXPECT_LT(on[i].at("truncated_frac").to_number<double>(), 1);
    EXPECT_LT(on[i].at("loss").to_number<double>(), off[i].at("loss").to_number<double>());
    EXPECT_NEAR(on[i].at("nll").to_number<double>(), off[i].at("nll").to_number<double>(), 1e-6);
  }
  std::vector<bool> truncated;
  for (const boost::json::object& line : lines_of_run(1.005, 2))
    if (!line.contains("validation")) truncated.push_back(line.at("truncated_frac").to_number<double>() > 0);
  if (world().rank() == 0) {
    EXPECT_EQ(truncated, (std::vector{false, false, true}));
  }
}

}  // namespace
}  // namespace argosy::test
