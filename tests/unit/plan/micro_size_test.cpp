#include "plan/micro_size.hpp"

#include "plan_support.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using Sizes = std::vector<std::int64_t>;

/// A translation model, 65,536 padded_tokens a step, rows of up to 128 positions a side.
plan::RunConfig translator(const std::vector<std::string>& set = {}) {
  config::Document document = config::Document::parse(
      R"({"run_dir": "r", "data": {"tokenizer": "t", "shards": "s",
                                   "corpora": [{"name": "c", "source": "a", "target": "b"}]},
          "model": {"preset": "mt_base", "vocab_size": 8000, "max_positions": 128},
          "schedule": {"lr": 1e-4, "length": 1000}, "batch": {"global_size": 65536, "micro_size": "auto"}})",
      "translator.json");
  for (const std::string& assignment : set) document.set(assignment);
  return config::from_document<plan::RunConfig>(document);
}

TEST(LegalMicroSizes, HoldALongRowAndGiveAllRanksWork) {
  EXPECT_EQ(plan::legal_micro_sizes(translator(), 65536, 8), Sizes({256, 512, 1024, 2048, 4096, 8192}));
  EXPECT_EQ(plan::legal_micro_sizes(translator({"batch.unit=examples"}), 12, 2), Sizes({1, 2, 3, 6}));
  const plan::RunConfig rows = mistral({"batch.unit=padded_tokens"});
  EXPECT_EQ(plan::legal_micro_sizes(rows, 6 * 8192, 1), Sizes({8192, 2 * 8192, 3 * 8192, 6 * 8192}))
      << "rows are whole";
}

TEST(LegalMicroSizes, ComeNearestWhereNoneIsRight) {
  // 20 of 21 places have work; 10 of 12 would be 16.7 % idle.
  EXPECT_EQ(plan::legal_micro_sizes(translator({"batch.unit=examples"}), 20, 3), Sizes({1}));
  EXPECT_EQ(plan::legal_micro_sizes(translator({"batch.unit=examples"}), 2, 8), Sizes({1}));
  EXPECT_EQ(plan::legal_micro_sizes(translator(), 100, 1), Sizes({1, 2, 4, 5, 10, 20, 25, 50, 100})) << "no long row";
}

TEST(FullRows, AreAsLongAsTheModelAllows) {
  const auto rows = [](const plan::RunConfig& config, std::int64_t size) {
    const plan::FullRows full = plan::full_rows(config, shape_of(config), size);
    return std::tuple(full.rows, full.source_width, full.target_width);
  };
  EXPECT_EQ(rows(translator({"batch.unit=examples"}), 5), std::tuple(5, 128, 128));
  EXPECT_EQ(rows(translator(), 1290), std::tuple(10, 1, 128)) << "the decoder keeps more";
  EXPECT_EQ(rows(translator(), 1300), std::tuple(11, 1, 117));
  EXPECT_EQ(rows(translator({"model.encoder.layers=12", "model.decoder.layers=1"}), 1290), std::tuple(10, 128, 1));
  EXPECT_EQ(rows(mistral(), 3), std::tuple(3, 0, 8192));
  EXPECT_EQ(rows(mistral({"batch.unit=padded_tokens"}), 2 * 8192), std::tuple(2, 0, 8192));
}

TEST(ChooseMicroSize, TakesTheLargestThatLeavesTenPercent) {
  const plan::PlanTarget ranks{.layout = partition::Layout({4, 4})};
  for (const std::vector<std::string>& set :
       {std::vector<std::string>{}, {"sharding.zero_stage=3"}, {"sharding.recompute=block"}, {"batch.unit=examples"}}) {
    const plan::RunConfig config = translator(set);
    const spec::ModelSpec spec = shape_of(config);
    const auto forecast = [&](std::int64_t size) {
      return plan::full_length_bytes(
          config, spec, ranks,
          {.global_size = 65536, .micro_size = size, .accumulation = static_cast<int>(65536 / size / 8)});
    };
    std::int64_t smallest = 0;
    for (const std::int64_t size : plan::legal_micro_sizes(config, 65536, 8)) {
      const auto enough = static_cast<std::int64_t>(std::ceil(static_cast<double>(forecast(size)) / 0.9)) + 1;
      const plan::MicroSizeChoice chosen = plan::choose_micro_size(config, spec, with_memory(ranks, enough));
      EXPECT_EQ(chosen.sizes.micro_size, size);
      EXPECT_EQ(chosen.sizes.accumulation, 65536 / size / 8);
      EXPECT_EQ(std::pair(chosen.forecast_bytes, chosen.memory_bytes), std::pair(forecast(size), enough));
      if (smallest > 0) {
        EXPECT_EQ(plan::choose_micro_size(config, spec, with_memory(ranks, enough - 3)).sizes.micro_size, smallest);
      }
      smallest = size;
    }
    EXPECT_EQ(plan::choose_micro_size(config, spec, with_memory(ranks, 1LL << 50)).sizes.accumulation, 1);
  }
}

TEST(ChooseMicroSize, CountsWhatIsHeldAtOneTime) {
  const auto bytes = [](const std::vector<std::string>& set, const plan::PlanTarget& where) {
    const plan::RunConfig config = translator(set);
    return plan::full_length_bytes(config, shape_of(config), where,
                                   {.global_size = 65536, .micro_size = 8192, .accumulation = 8});
  };
  const plan::PlanTarget cpu{.layout = partition::Layout({1})}, gpu = target(1, 1);
  const plan::RunConfig config = translator();
  const plan::RunPlan plan = run_plan_of(translator({"batch.micro_size=8192"}), cpu);
  const plan::ActivationMemory kept =
      plan::activations_of(config, shape_of(config), plan::full_rows(config, shape_of(config), 8192).positions());
  EXPECT_EQ(bytes({}, gpu), plan.chosen().state.state() + static_cast<std::int64_t>(kept.total()));
  EXPECT_EQ(bytes({}, cpu) - bytes({}, gpu), plan.copy_bytes) << "the copy that checkpoints are written from";
  EXPECT_NEAR(static_cast<double>(bytes({"sharding.accumulation_order=breadth_first"}, gpu) - bytes({}, gpu)),
              7 * (kept.total() - kept.logits), 8);
}

TEST(ChooseMicroSize, RefusesWhatCannotBe) {
  const plan::PlanTarget alone{.layout = partition::Layout({1})};
  const auto refused = [&](const std::vector<std::string>& set, std::optional<std::int64_t> memory) {
    const plan::RunConfig config = translator(set);
    return refusal(Fault::config,
                   [&] { (void)plan::choose_micro_size(config, shape_of(config), with_memory(alone, memory)); });
  };
  EXPECT_TRUE(says(refused({}, std::nullopt),
                   "batch.micro_size: expected a number, since the memory of a rank is not "
                   "known, got auto; set batch.micro_size"));
  EXPECT_TRUE(says(refused({}, 100LL << 20), "the smallest that divides the step, 256, needs",
                   "is 90.0 MiB; try --set "
                   "sharding.zero_stage=3, --set sharding.recompute=block, a smaller model.max_positions"));
  EXPECT_TRUE(says(refused({"sharding.zero_stage=3", "sharding.recompute=block"}, 64LL << 20),
                   "; try a smaller model.max_positions"));
}

TEST(ChooseMicroSize, IsSaidInALine) {
  EXPECT_EQ(
      plan::line_of({.sizes = {.global_size = 64, .micro_size = 16, .micro_batches = 4, .accumulation = 2},
                     .forecast_bytes = 3 << 20,
                     .memory_bytes = 5 << 20}),
      "batch.micro_size auto: 16, accumulation 2; with rows of full length a rank needs 3.0 MiB (estimate) of 5.0 "
      "MiB");
}

}  // namespace
}  // namespace argosy::test
