#include "plan/adapter_rank.hpp"

#include "plan/micro_size.hpp"
#include "plan_support.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

constexpr std::int64_t pieces = 8000;

plan::RunConfig tuner() {
  return config::from_document<plan::RunConfig>(config::Document::parse(
      R"({"run_dir": "r", "data": {"tokenizer": "t", "shards": "s",
                                   "corpora": [{"name": "c", "source": "a", "target": "b"}]},
          "model": {"preset": "mt_base", "max_positions": 128}, "init_from": "base", "lora": {"rank": "auto"},
          "schedule": {"lr": 1e-4, "length": 1000}, "batch": {"global_size": 8192, "micro_size": 1024}})",
      "tuner.json"));
}

TEST(ChooseAdapterRank, TakesTheLargestThatLeavesTenPercent) {
  const plan::PlanTarget ranks{.layout = partition::Layout({2})};
  for (const std::int64_t rank : spec::adapter_ranks) {
    plan::RunConfig config = tuner();
    ASSERT_FALSE(config.lora->rank);
    config.lora->rank = rank;
    const std::int64_t forecast = plan::full_length_bytes(config, plan::spec_of(config, pieces), ranks,
                                                          {.global_size = 8192, .micro_size = 1024, .accumulation = 4});
    const auto fits = static_cast<std::int64_t>(static_cast<double>(forecast) / plan::filled_share) + 1;
    const plan::AdapterRankChoice choice = plan::choose_adapter_rank(tuner(), pieces, with_memory(ranks, fits));
    EXPECT_EQ(std::tuple(choice.rank, choice.forecast_bytes, choice.memory_bytes), std::tuple(rank, forecast, fits));
    if (rank > 16) {
      EXPECT_EQ(plan::choose_adapter_rank(tuner(), pieces, with_memory(ranks, fits - 10)).rank, rank / 2);
    }
  }
}

TEST(ChooseAdapterRank, ARankHasTheComponentsOfItsTasksAlone) {
  const auto placed_by = [](const char* placement) {
    return config::from_document<plan::RunConfig>(
        config::Document::parse(std::string(R"({"run_dir": "r", "data": {"tokenizer": "t", "shards": "s"},
            "tasks": {"languages": ["a", "b", "c"], "pairs": ["a-b", "b-c", "c-a"], "files": {"train": "{sorted_pair}.{language}"}},
            "model": {"width": 256, "ff": 1024, "heads": 4, "max_positions": 128,
                      "encoder": {"stacks": [{"layers": 4, "share": "source"}, {"layers": 1}]},
                      "decoder": {"stacks": [{"layers": 4, "share": "target"}]}},
            "init_from": "base", "lora": {"rank": "auto"}, "schedule": {"lr": 1e-4, "length": 1000},
            "batch": {"global_size": 3072, "micro_size": 1024}, "placement": )") +
                                    placement + "}",
                                "placed.json"));
  };
  const plan::PlanTarget ranks{.layout = partition::Layout({3})};
  plan::RunConfig everywhere = placed_by(R"("everywhere")");
  everywhere.lora->rank = 16;
  const std::int64_t forecast = plan::full_length_bytes(everywhere, plan::spec_of(everywhere, pieces), ranks,
                                                        {.global_size = 3072, .micro_size = 1024, .accumulation = 1});
  const auto fits = static_cast<std::int64_t>(static_cast<double>(forecast) / plan::filled_share) + 1;
  EXPECT_EQ(plan::choose_adapter_rank(placed_by(R"("everywhere")"), pieces, with_memory(ranks, fits)).rank, 16);
  EXPECT_GT(
      plan::choose_adapter_rank(placed_by(R"({"a-b": [0], "b-c": [1], "c-a": [2]})"), pieces, with_memory(ranks, fits))
          .rank,
      16);
}

TEST(ChooseAdapterRank, RefusesUnknownMemoryAndTooLittle) {
  const plan::PlanTarget one{};
  EXPECT_TRUE(says(refusal(Fault::config, [&] { (void)plan::choose_adapter_rank(tuner(), pieces, one); }),
                   "ARGOSY_RANK_MEMORY"));
  EXPECT_TRUE(
      says(refusal(Fault::config, [&] { (void)plan::choose_adapter_rank(tuner(), pieces, with_memory(one, 1 << 20)); }),
           "per rank for rank 16, got 0.9 MiB"));
}

}  // namespace
}  // namespace argosy::test
