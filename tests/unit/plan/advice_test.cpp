#include <gtest/gtest.h>

#include "plan/run_plan.hpp"
#include "plan_support.hpp"
#include "support/refusal.hpp"

/// What a plan warns of and suggests.
namespace argosy::test {
namespace {

TEST(RunPlan, SaysThePeakOfLegacySchedulesAndWarnsWithoutWarmup) {
  const auto plan_of = [](std::vector<std::string> set) { return run_plan_of(mistral(set), target(16, 8)); };
  const auto rates = [&](const std::vector<std::string>& set) {
    return fmt::format("{}", fmt::join(plan::lines_of(plan_of(set), mistral(set), plan::Schemes::configured), "\n"));
  };
  const std::vector<std::string> noam{"schedule.style=noam", "schedule.lr=0", "schedule.noam_scale=2"},
      rsqrt{"schedule.style=rsqrt", "schedule.lr=0", "schedule.rsqrt_scale=0.01"},
      staircase{"schedule.style=exponential_decay", "schedule.gamma=0.5", "schedule.start=0", "schedule.period=9"},
      none{"schedule.warmup=0"};
  EXPECT_TRUE(says(rates(noam), "the peak of schedule noam is 0.0009882, at 1000"));
  EXPECT_TRUE(says(rates(rsqrt), "the peak of schedule rsqrt is 0.0003162, at 1"));
  EXPECT_TRUE(says(rates(staircase), "the peak of schedule exponential_decay is 5e-05, at 1"));
  EXPECT_FALSE(rates({}).find("peak") != std::string::npos);
  EXPECT_TRUE(plan::warnings_of(plan_of(noam)).empty());
  EXPECT_TRUE(says(plan::warnings_of(plan_of(rsqrt)).at(0), "schedule.style rsqrt has no warm-up: the first updates"));
  EXPECT_TRUE(says(plan::warnings_of(plan_of(staircase)).at(0), "schedule.style exponential_decay has no warm-up"));
  // No style, and no rate, of the user's.
  const std::vector<std::string> relative{"optimizer.type=adafactor", "optimizer.relative_step=true", "schedule.lr=0",
                                          "schedule.min_lr=0"};
  EXPECT_TRUE(plan::warnings_of(plan_of(relative)).empty());
  EXPECT_TRUE(rates(relative).find("peak") == std::string::npos);
  EXPECT_TRUE(says(plan::warnings_of(plan_of(none)).at(0), "schedule.warmup is 0: the first updates"));
}

TEST(RunPlan, WarnsOfUnusualLearningRatesAndSizes) {
  const auto warnings = [](const std::vector<std::string>& set) {
    return plan::warnings_of(run_plan_of(mistral(set), target(16, 8)));
  };
  const char* const high = "the peak of the learning rate is 0.01, which is unusually high for a model of this size";
  EXPECT_TRUE(says(warnings({"schedule.lr=0.01"}).at(0), high, "a usual schedule.lr is 0.0001"));
  EXPECT_TRUE(says(warnings({"schedule.lr=1e-6", "schedule.min_lr=0"}).at(0), "unusually low"));
  EXPECT_TRUE(warnings({"schedule.lr=1e-6", "schedule.min_lr=0", "init_from=model"}).empty());
  EXPECT_TRUE(says(warnings({"schedule.lr=0.01", "optimizer.type=muon"}).at(0), high));
  EXPECT_TRUE(warnings({"schedule.lr=0.01", "optimizer.type=adafactor"}).empty()) << "it scales its updates";
  EXPECT_EQ(
      warnings({"model.ff=14337", "model.vocab_multiple=1", "model.vocab_size=32001"}),
      std::vector<std::string>{"model.ff is 14337, model.vocab_size, rounded up to model.vocab_multiple, is 32001; "
                               "matrices are slow unless their sizes are multiples of 8: choose the next multiple"});
}

TEST(RunPlan, SuggestsShiftedPositionsForInputsWithContext) {
  const auto warnings = [](std::vector<std::string> set, bool context) {
    set.insert(set.begin(), {"model.encoder.position=sinusoidal", "model.decoder.position=learned"});
    plan::RunConfig config = t5(set);
    if (context) config.data.corpora[0].transforms.push_back({data::Context{.source_previous = 1}});
    return plan::warnings_of(run_plan_of(config, target(1, 8)));
  };
  ASSERT_EQ(warnings({}, true).size(), 1U);
  EXPECT_TRUE(says(warnings({}, true).front(), "model.position_shift_max"));
  EXPECT_TRUE(warnings({}, false).empty());
  EXPECT_TRUE(warnings({"model.position_shift_max=100"}, true).empty());
  EXPECT_TRUE(warnings({"model.decoder.position=rope"}, true).empty()) << "it cannot be set";
}

TEST(RunPlan, WarnsOfNoiseOnEmbeddings) {
  EXPECT_EQ(plan::warnings_of(run_plan_of(mistral({"model.neftune_alpha=5"}), target(16, 8))),
            std::vector<std::string>{"model.neftune_alpha is 5: NEFTune often ruins models; compare the validations "
                                     "with those of a run without it"});
}

TEST(RunPlan, WarnsOfRanksWithoutWorkAndOfMemoryThatIsNotThere) {
  const auto warnings = [](const std::vector<std::string>& set, const plan::PlanTarget& where) {
    return plan::warnings_of(run_plan_of(mistral(set), where));
  };
  EXPECT_TRUE(warnings({}, target(16, 8)).empty());
  EXPECT_EQ(warnings({}, target(6, 8, "h200")),
            std::vector<std::string>{"ranks are idle 11.1 % of the time: 128 micro-batches a step for 144 slots "
                                     "(batch.global_size 96 or 144 avoids that)"});
  EXPECT_EQ(warnings({}, target(32, 8)),
            std::vector<std::string>{"ranks are idle 50.0 % of the time: 128 micro-batches a step for 256 slots "
                                     "(batch.global_size 256 avoids that)"});
  EXPECT_EQ(warnings({}, target(4, 8)),
            std::vector<std::string>{
                "the run does not fit in memory; the cheapest change: --set sharding.recompute=activation"});
  EXPECT_EQ(warnings({"batch.global_size=1", "schedule.length=5000000"}, target(1, 1, "a100")),
            std::vector<std::string>{"the run does not fit in memory with any batch.micro_size, sharding.recompute or "
                                     "sharding scheme that was tried; use more GPUs, or GPUs with more memory"});
  EXPECT_NO_THROW(plan::require_fits(run_plan_of(mistral(), target(16, 8))));
  const plan::RunPlan small = run_plan_of(mistral(), target(4, 8));
  EXPECT_TRUE(says(refusal(Fault::config, [&] { plan::require_fits(small); }),
                   "but the GPU (h100) has 78.6 GiB; try --set sharding.recompute=activation"));
  EXPECT_EQ(plan_json(mistral(), target(4, 8)).at_pointer("/warnings").as_array().size(), 1U);
}

TEST(RunPlan, WarnsOfFarTooFewOrTooManyTokensForAParameter) {
  const auto warnings = [](std::vector<std::string> set) {
    return plan::warnings_of(run_plan_of(mistral(set), target(16, 8)));
  };
  // 8192 tokens in each of 128 rows: 1,048,576 a step, for 7,241,732,096 parameters.
  EXPECT_TRUE(warnings({"schedule.length=7000"}).empty()) << "1.01 tokens for each";
  EXPECT_EQ(warnings({"schedule.length=6000"}),
            std::vector<std::string>{
                "the run reads 6.29 G tgt_tokens for 7.24 G parameters, 0.869 for each; about 20 are usual "
                "(arXiv:2203.15556), so the model is large for its training: raise schedule.length, or take a smaller "
                "model"});
  EXPECT_TRUE(warnings({"schedule.length=6000", "init_from=somewhere"}).empty()) << "it has been trained";
  EXPECT_TRUE(warnings({"schedule.length=13800000"}).empty()) << "1998 tokens for each";
  const std::vector<std::string> many = warnings({"schedule.length=14000000"});
  ASSERT_EQ(many.size(), 1U);
  EXPECT_TRUE(says(many.front(), "7.24 G parameters, 2.03e+03 for each", "so a larger model would learn more"));
  EXPECT_TRUE(warnings({"schedule.length=1e", "schedule.warmup=0.01e"}).empty()) << "not known before the data are";
}

TEST(RunPlan, WarnsOfASmallEncoderWithABiasOfPositions) {
  const auto warnings = [](const std::vector<std::string>& set) {
    return plan::warnings_of(run_plan_of(t5(set), target(1, 8)));
  };
  ASSERT_EQ(warnings({}).size(), 1U);
  EXPECT_TRUE(warnings({}).front().starts_with("model.encoder.position is t5, and the model has 60.7 M"))
      << warnings({}).front();
  EXPECT_EQ(warnings({"model.encoder.position=alibi"}).size(), 1U);
  for (const char* safe : {"sinusoidal", "sinusoidal_fairseq", "learned", "rope"})
    EXPECT_TRUE(warnings({std::string("model.encoder.position=") + safe}).empty()) << safe;
  EXPECT_TRUE(warnings({"model.width=2048", "model.ff=8192", "schedule.length=100000"}).empty()) << "large";
  EXPECT_TRUE(plan::warnings_of(run_plan_of(mistral({"model.decoder.layers=1"}), target(16, 8))).empty());
}

}  // namespace
}  // namespace argosy::test
