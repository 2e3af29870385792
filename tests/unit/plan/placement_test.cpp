#include "plan/placement.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "config/describe.hpp"
#include "plan/placement_plan.hpp"
#include "plan/plan_lines.hpp"
#include "plan/run_plan.hpp"
#include "plan/sharing.hpp"
#include "support/fault_options.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using plan::Placement, plan::PlacementConfig, plan::PlacementCosts, plan::RunConfig;
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

/// Directions between `languages`, an encoder stack for each source, a decoder stack for each target.
RunConfig many(int languages, const std::string& others = "") {
  std::string codes;
  for (int i = 0; i < languages; ++i) codes += fmt::format(R"({}"l{}")", i == 0 ? "" : ", ", i);
  const std::string text = R"({"run_dir": "r", "data": {"tokenizer": "t", "shards": "s"}, "precision": {"mode": "fp32"},
      "tasks": {"languages": [)" +
                           codes + R"(], "files": {"train": "{sorted_pair}.{language}"}},
      "schedule": {"lr": 1e-3, "length": 100}, "batch": {"global_size": 24000, "micro_size": 1000},
      "model": {"width": 32, "ff": 64, "heads": 2, "vocab_size": 50,
                "encoder": {"stacks": [{"layers": 1, "share": "source"}, {"layers": 1}]},
                "decoder": {"stacks": [{"layers": 1, "share": "target"}]}})" +
                           others + "}";
  return config::from_document<RunConfig>(config::Document::parse(text, "test.json"));
}
std::string refused(const std::string& placement) {
  return refusal(Fault::config, [&] { (void)many(2, R"(, "placement": )" + placement); });
}

TEST(Placement, IsReadFromAWordOrARankList) {
  EXPECT_TRUE(many(2).placement.is_everywhere());
  EXPECT_TRUE(many(2, R"(, "placement": "auto")").placement.is_auto);
  const RunConfig config = many(2, R"(, "placement": {"l0-l1": [2, 0], "l1-l0": [1]})");
  EXPECT_THAT(config.placement.tasks.at("l0-l1"), ElementsAre(0, 2));
  EXPECT_EQ(PlacementConfig::parse(config.placement.text()).tasks, config.placement.tasks);
  for (const char* text : {"\"nowhere\"", "{}", R"({"l0-l1": []})", R"({"l0-l1": [-1]})", R"({"l0-l1": [1, 1]})",
                           R"({"l0-l1": [0.5]})", R"({"l0-l1": [4294967296]})"})
    EXPECT_THAT(refused(text), HasSubstr("the ranks of each task")) << text;
  EXPECT_THAT(refused(R"({"l0-l1": [0]})"), HasSubstr("none for l1-l0"));
  EXPECT_THAT(refused(R"({"l0-l1": [0], "l1-l0": [0], "l0-l2": [0]})"), HasSubstr("l0-l2"));
}

TEST(Placement, GivesComponentsToTheRanksOfTheirTasks) {
  const RunConfig config = many(3, R"(, "placement": {"l0-l1": [0], "l0-l2": [2], "l1-l0": [1], "l1-l2": [1],
                                                      "l2-l0": [3], "l2-l1": [3]})");
  const spec::ModelSpec spec = plan::spec_of(config, 0);
  const Placement placement = plan::placement_of(spec, config.placement, 4);
  const auto members = [&](const std::string& name) {
    const auto found = std::ranges::find(spec.components, name, &spec::Component::name);
    return placement.members(static_cast<std::size_t>(found - spec.components.begin()));
  };
  EXPECT_THAT(members("all"), IsEmpty());
  EXPECT_THAT(members("encoder.l0"), ElementsAre(0, 2));
  EXPECT_THAT(members("encoder.l1"), ElementsAre(1));
  EXPECT_THAT(members("decoder.l0"), ElementsAre(1, 3));
  EXPECT_THAT(members("decoder.l2"), ElementsAre(1, 2));
  EXPECT_EQ(placement.groups().size(), 6U);
  for (int rank = 0; rank < 4; ++rank)
    for (std::size_t c = 0; c < spec.components.size(); ++c)
      EXPECT_EQ(placement.absent(rank).contains(c), placement.rank_in(c, rank) < 0);
  EXPECT_EQ(placement.layout_of(1, partition::Layout({2, 2})), partition::Layout({1, 1})) << "encoder.l0";
  EXPECT_THAT(plan::task_lines(spec, placement), testing::Contains(HasSubstr("l0-l1; ranks 0")).Times(0));
  EXPECT_THAT(plan::task_lines(spec, placement), testing::Contains(HasSubstr("l0-l1, l0-l2; ranks 0, 2")));
  EXPECT_THAT(plan::components_line(spec, placement, 4), HasSubstr("7, 3 to 4 of them on a rank"));
  EXPECT_THAT(plan::components_line(spec, placement, 4), HasSubstr("; 6 sets of ranks"));
  EXPECT_EQ(plan::text_of_ranks({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  EXPECT_THAT(refusal(Fault::config, [&] { (void)plan::placement_of(spec, config.placement, 3); }),
              HasSubstr("ranks from 0 to 2"));
  EXPECT_THAT(refusal(Fault::config, [&] { (void)plan::placement_of(spec, config.placement, 5); }),
              HasSubstr("none for rank 4"));
  EXPECT_TRUE(plan::placement_of(spec, PlacementConfig{}, 4).is_everywhere());
  std::vector<std::vector<int>> all(spec.routes.size(), std::vector<int>{0, 1});
  EXPECT_TRUE(plan::placement_of(spec, all, 2).is_everywhere());
}

/// A rank that computes most, in parts of an even division.
double busiest(const Placement& placement, const PlacementCosts& costs, int world, int micro_batches) {
  const plan::TypicalStep step = plan::typical_step(placement, costs.routes, micro_batches, world, false);
  std::vector<double> seconds(static_cast<std::size_t>(world));
  for (std::size_t route = 0; route < costs.routes.size(); ++route)
    for (std::size_t i = 0; i < placement.routes[route].size(); ++i)
      seconds[static_cast<std::size_t>(placement.routes[route][i])] += step.shares[route][i] * costs.routes[route];
  return std::ranges::max(seconds) * world / std::accumulate(costs.routes.begin(), costs.routes.end(), 0.0);
}

/// Tasks of very different sizes, and components that cost something to move.
PlacementCosts drawn_costs(const spec::ModelSpec& spec, std::mt19937_64& random) {
  PlacementCosts costs;
  for (std::size_t route = 0; route < spec.routes.size(); ++route)
    costs.routes.push_back(std::exp(static_cast<double>(random() % 1000) / 250));
  for (std::size_t c = 0; c < spec.components.size(); ++c) {
    costs.bytes.push_back(1'000'000);
    costs.shared_bytes.push_back(600'000);
    costs.inner_s.push_back(.2);
    costs.outer_s.push_back(1);
  }
  costs.shares = costs.routes;
  return costs;
}

Placement drawn_placement(const spec::ModelSpec& spec, int world, std::mt19937_64& random) {
  std::vector<std::vector<int>> routes(spec.routes.size());
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::shuffle(ranks, random);
  for (std::size_t r = 0; r < std::max(ranks.size(), routes.size()); ++r)
    routes[r % routes.size()].push_back(ranks[r % ranks.size()]);
  for (std::vector<int>& own : routes) std::ranges::sort(own);
  return plan::placement_of(spec, routes, world);
}

TEST(Placement, TheSearchIsEvenAndBetterThanRandomOnes) {
  // 210 tasks of 15 languages on 256 ranks.
  const spec::ModelSpec spec = plan::spec_of(many(15), 0);
  const partition::Layout layout(std::vector<int>(32, 8));
  std::mt19937_64 random(4);
  PlacementCosts costs = drawn_costs(spec, random);
  const Placement found = plan::search_placement(spec, costs, layout);
  ASSERT_FALSE(found.is_everywhere());
  EXPECT_LT(busiest(found, costs, 256, 25'600), 1.1);
  costs.micro_batches = 2'560;
  const plan::PlacementScore score = plan::score_of(found, spec, costs, layout);
  EXPECT_EQ(plan::search_placement(spec, costs, layout), found) << "again, with more micro-batches than are dealt";
  EXPECT_LT(score, plan::score_of({}, spec, costs, layout)) << "everywhere";
  EXPECT_LT(score, plan::score_of(plan::round_robin(spec, 256), spec, costs, layout));
  for (int i = 0; i < (test::is_sanitized ? 50 : 1000); ++i)
    ASSERT_LT(score, plan::score_of(drawn_placement(spec, 256, random), spec, costs, layout));
}

TEST(Placement, TheSearchIsBetterThanRandomOnesWhereRanksHaveFewMicroBatches) {
  const spec::ModelSpec spec = plan::spec_of(many(4), 0);  // 12 tasks
  std::mt19937_64 random(5);
  for (const int ranks : {3, 8}) {
    for (const int micro_batches : {8, 24}) {
      PlacementCosts costs = drawn_costs(spec, random);
      costs.micro_batches = micro_batches;
      const partition::Layout layout({ranks});
      const plan::PlacementScore score =
          plan::score_of(plan::search_placement(spec, costs, layout), spec, costs, layout);
      for (int i = 0; i < (test::is_sanitized ? 30 : 300); ++i) {
        const plan::PlacementScore other = plan::score_of(drawn_placement(spec, ranks, random), spec, costs, layout);
        ASSERT_FALSE(other < score) << ranks << " ranks, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(Placement, TheSearchExchangesTasksOfItsFirstOrders) {
  // 6 tasks on 4 ranks, whose first orders are 16 % slower than the best of these random placements.
  const spec::ModelSpec spec = plan::spec_of(many(3), 0);
  const partition::Layout layout({4});
  std::mt19937_64 random(2);
  PlacementCosts costs = drawn_costs(spec, random);
  costs.inner_s.assign(spec.components.size(), 20);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3000; ++i)
    best = std::min(best, plan::score_of(drawn_placement(spec, 4, random), spec, costs, layout).step_s);
  EXPECT_LT(plan::score_of(plan::search_placement(spec, costs, layout), spec, costs, layout).step_s, best);
}

TEST(Placement, WhereNothingMovesForFreeEverywhereIsChosen) {
  const spec::ModelSpec spec = plan::spec_of(many(3), 0);
  PlacementCosts costs{.routes = std::vector<double>(spec.routes.size(), 1),
                       .bytes = std::vector<std::int64_t>(spec.components.size(), 0),
                       .shared_bytes = std::vector<std::int64_t>(spec.components.size(), 0),
                       .inner_s = std::vector<double>(spec.components.size(), 0),
                       .outer_s = std::vector<double>(spec.components.size(), 0)};
  EXPECT_TRUE(plan::search_placement(spec, costs, partition::Layout({4})).is_everywhere());
  EXPECT_TRUE(plan::search_placement(spec, costs, partition::Layout({1})).is_everywhere());
  costs.bytes.assign(spec.components.size(), 10);
  EXPECT_FALSE(plan::search_placement(spec, costs, partition::Layout({4})).is_everywhere()) << "as fast, less memory";
}

/// Directions with decoder stacks of their own, each on rank 0 and a rank of its own.
RunConfig around_rank_0(int languages) {
  RunConfig config = many(languages);
  config.model.decoder.stacks[0].share = spec::Share::pair;
  for (int rank = 0; const data::CorpusConfig& corpus : config.data.corpora)
    config.placement.tasks[corpus.name] = {0, ++rank};
  return config;
}

TEST(Placement, TooManySetsOfRanksAreRefusedAndManyWarned) {
  const auto planned = [](const RunConfig& config) {
    const partition::Layout layout({1 + static_cast<int>(config.data.corpora.size())});
    return plan::plan_run(config, plan::spec_of(config, 0), {.layout = layout});
  };
  const auto warned = testing::Contains(HasSubstr("sets of ranks, each with communicators"));
  EXPECT_THAT(plan::warnings_of(planned(around_rank_0(6))), testing::Not(warned)) << "6 encoders and 30 decoders";
  EXPECT_THAT(plan::warnings_of(planned(around_rank_0(9))), warned) << "9 and 72";
  EXPECT_THAT(refusal(Fault::config, [&] { (void)planned(around_rank_0(15)); }),
              HasSubstr("at most 200 sets of ranks"));
}

TEST(Placement, TheSearchIsNoWorseThanOthersWhereRanksHaveFewMicroBatches) {
  RunConfig config = many(15);
  config.model.width = 512;
  config.model.ff = 2048;
  config.model.vocab_size = 32'000;
  config.model.encoder.stacks = {{.layers = 3, .share = spec::Share::source}, {.layers = 3}};
  config.model.decoder.stacks[0].layers = 6;
  config.precision.mode = plan::PrecisionMode::bf16;
  config.placement.is_auto = true;
  for (const int nodes : {1, 8, 32}) {
    if (test::is_sanitized && nodes > 1) break;  // more take a minute
    config.batch.global_size = 1024 * config.batch.micro_size.value();
    const plan::PlanTarget target{.layout = partition::Layout(std::vector<int>(static_cast<std::size_t>(nodes), 8)),
                                  .gpu = plan::gpu_by_name("h100")};
    for (const plan::OtherPlacement& other : plan::plan_run(config, plan::spec_of(config, 0), target).other_placements)
      EXPECT_GE(other.step_ratio, 1 - 1e-9) << other.name << " on " << nodes << " nodes";
  }
}

TEST(Placement, NoRankTakesOnATaskForAMomentOfItsTime) {
  const spec::ModelSpec spec = plan::spec_of(many(3), 0);
  const PlacementCosts costs{.routes = {1, 1.01, .99, 1, 1.01, .99},
                             .bytes = std::vector<std::int64_t>(spec.components.size(), 10),
                             .shared_bytes = std::vector<std::int64_t>(spec.components.size(), 0),
                             .inner_s = std::vector<double>(spec.components.size(), .1),
                             .outer_s = std::vector<double>(spec.components.size(), 0)};
  const Placement found = plan::search_placement(spec, costs, partition::Layout({6}));
  EXPECT_THAT(found.routes, testing::Each(testing::SizeIs(1)));
}

TEST(Placement, WhereAStepHasFewMicroBatchesThoseAreDealt) {
  const RunConfig config = many(4);
  const spec::ModelSpec spec = plan::spec_of(config, 0);
  const partition::Layout layout({8});
  PlacementCosts costs{.routes = std::vector<double>(spec.routes.size(), 1. / 12),
                       .bytes = std::vector<std::int64_t>(spec.components.size(), 100),
                       .shared_bytes = std::vector<std::int64_t>(spec.components.size(), 0),
                       .inner_s = std::vector<double>(spec.components.size(), 1e-3),
                       .outer_s = std::vector<double>(spec.components.size(), 0)};
  EXPECT_FALSE(plan::search_placement(spec, costs, layout).is_everywhere()) << "less memory and traffic";
  costs.shares = costs.routes;
  for (const int micro_batches : {8, 12, 16, 24, 32, 96}) {
    costs.micro_batches = micro_batches;
    const Placement found = plan::search_placement(spec, costs, layout);
    EXPECT_LE(plan::score_of(found, spec, costs, layout), plan::score_of({}, spec, costs, layout)) << micro_batches;
    EXPECT_TRUE(micro_batches != 8 || found.is_everywhere()) << "no rank waits for another";
    EXPECT_TRUE(micro_batches != 96 || !found.is_everywhere());
  }
}

TEST(Placement, TakesMoreTimeWhereTheFastestDoesNotFit) {
  const spec::ModelSpec spec = plan::spec_of(many(4), 0);
  const partition::Layout layout({8});
  PlacementCosts costs{.routes = std::vector<double>(spec.routes.size(), 1. / 12),
                       .bytes = std::vector<std::int64_t>(spec.components.size(), 100),
                       .shared_bytes = std::vector<std::int64_t>(spec.components.size(), 0),
                       .inner_s = std::vector<double>(spec.components.size(), 1e-3),
                       .outer_s = std::vector<double>(spec.components.size(), 0),
                       .micro_batches = 8};
  costs.shares = costs.routes;
  const Placement fastest = plan::search_placement(spec, costs, layout);
  EXPECT_TRUE(fastest.is_everywhere());
  const plan::PlacementScore of_fastest = plan::score_of(fastest, spec, costs, layout);
  costs.capacity_bytes = of_fastest.most_bytes - 1;
  EXPECT_EQ(plan::score_of(fastest, spec, costs, layout).missing_bytes, 1);
  const plan::PlacementScore fitting = plan::score_of(plan::search_placement(spec, costs, layout), spec, costs, layout);
  EXPECT_EQ(fitting.missing_bytes, 0);
  EXPECT_GT(fitting.step_s, of_fastest.step_s);
}

TEST(Placement, KnowsTheMemoryOfARank) {
  const RunConfig config = many(2);
  const spec::ModelSpec spec = plan::spec_of(config, 0);
  const auto capacity = [&](const plan::PlanTarget& target) {
    return plan::placement_costs(config, spec, target, {.5, .5}).capacity_bytes;
  };
  const partition::Layout two({2});
  EXPECT_EQ(capacity({.layout = two}), 0);
  const std::int64_t given = capacity({.layout = two, .rank_bytes = 1 << 30});
  EXPECT_LT(given, 1 << 30) << "activations";
  EXPECT_GT(given, 0);
  const plan::Gpu* const gpu = plan::gpu_by_name("h100");
  EXPECT_GT(capacity({.layout = two, .gpu = gpu}), plan::capacity_bytes(*gpu) / 2);
}

TEST(Placement, SharesOfRoutesFollowWeights) {
  RunConfig config = many(2);
  config.data.corpora[0].weight = 3;
  const spec::ModelSpec spec = plan::spec_of(config, 0);
  EXPECT_THAT(plan::shares_of_routes(config, spec, nullptr), ElementsAre(.75, .25));
  const PlacementCosts costs = plan::placement_costs(config, spec, {.layout = partition::Layout({2})}, {.75, .25});
  EXPECT_NEAR(costs.routes[0], 3 * costs.routes[1], 1e-9 * costs.routes[0]);
  EXPECT_GT(costs.bytes[1], costs.shared_bytes[1]);
  config.sharding.zero_stage = 3;
  const PlacementCosts sharded = plan::placement_costs(config, spec, {.layout = partition::Layout({2})}, {.75, .25});
  EXPECT_EQ(sharded.bytes[1], sharded.shared_bytes[1]);
}

TEST(Placement, ThePlanHasTheMemoryAndTrafficOfARanksOwnComponents) {
  const std::string by_hand = R"(, "placement": {"l0-l1": [0, 1], "l1-l0": [2, 3]})";
  const auto planned = [](const RunConfig& config) {
    return plan::plan_run(config, plan::spec_of(config, 0), {.layout = partition::Layout({2, 2})});
  };
  const plan::RunPlan everywhere = planned(many(2)), placed = planned(many(2, by_hand));
  EXPECT_EQ(placed.spaces.parameters, everywhere.spaces.parameters);
  EXPECT_LT(placed.chosen().state.state(), everywhere.chosen().state.state());
  EXPECT_LT(placed.chosen().traffic.rank_outer, everywhere.chosen().traffic.rank_outer);
  EXPECT_EQ(placed.sizes.idle_share, 0);
  EXPECT_EQ(placed.sizes.accumulation, 6);
  EXPECT_GT(everywhere.chosen().traffic.node, placed.chosen().traffic.node);
  ASSERT_EQ(placed.other_placements.size(), 2U);
  EXPECT_GT(placed.other_placements[0].bytes_ratio, 1);
  EXPECT_GT(placed.other_placements[0].step_ratio, 1);
  EXPECT_THAT(everywhere.other_placements, IsEmpty());
  const RunConfig uneven = many(2, R"(, "placement": {"l0-l1": [0], "l1-l0": [1, 2, 3]})");
  EXPECT_NEAR(planned(uneven).sizes.idle_share, .5, 1e-9) << "rank 0 has 12 micro-batches, each other one has 4";
  EXPECT_EQ(planned(uneven).sizes.accumulation, 12);
  EXPECT_THAT(plan::warnings_of(planned(uneven)), testing::Contains(HasSubstr("idle about 50.0 %")));
  EXPECT_THAT(plan::warnings_of(placed), testing::Each(testing::Not(HasSubstr("idle"))));
}

TEST(Placement, ThePlanHasTheFiguresOfEachRank) {
  const auto planned = [](const RunConfig& config) {
    return plan::plan_run(config, plan::spec_of(config, 0), {.layout = partition::Layout({2, 2})});
  };
  EXPECT_THAT(planned(many(2)).ranks, IsEmpty()) << "all ranks have all";
  const RunConfig config = many(2, R"(, "placement": {"l0-l1": [0], "l1-l0": [1, 2, 3]})");
  const plan::RunPlan uneven = planned(config);
  ASSERT_EQ(uneven.ranks.size(), 4U);
  const plan::RankPlan &alone = uneven.ranks[0], &second = uneven.ranks[1], &other_node = uneven.ranks[2];
  EXPECT_THAT(alone.tasks, ElementsAre("l0-l1"));
  EXPECT_THAT(other_node.tasks, ElementsAre("l1-l0"));
  EXPECT_NEAR(alone.idle_share, 0, 1e-9);
  EXPECT_NEAR(other_node.idle_share, 2. / 3, 1e-9) << "4 micro-batches in 12 slots";
  EXPECT_EQ(other_node.state_bytes, uneven.ranks[3].state_bytes);
  EXPECT_GT(second.state_bytes, other_node.state_bytes) << "alone on its node, it owns as much as both others";
  EXPECT_NE(alone.state_bytes, second.state_bytes) << "nobody shares its components";
  EXPECT_EQ(std::max(alone.state_bytes, second.state_bytes), uneven.chosen().state.state());
  EXPECT_GT(other_node.sent_outer_bytes, alone.sent_outer_bytes) << "it alone shares components with another node";
  EXPECT_GT(second.sent_outer_bytes, 0);
  EXPECT_EQ(uneven.chosen().traffic.node, std::max(alone.sent_outer_bytes + second.sent_outer_bytes,
                                                   other_node.sent_outer_bytes + uneven.ranks[3].sent_outer_bytes));
  const std::vector<std::string> lines = plan::lines_of(uneven, config, plan::Schemes::all);
  EXPECT_THAT(lines,
              testing::Contains(testing::ContainsRegex("  rank 0: [0-9.]+ MiB for state; .* 0.0 % idle; l0-l1$")));
  EXPECT_THAT(lines, testing::Contains(testing::ContainsRegex("  ranks 2-3: .* 66.7 % idle; l1-l0$")));
  EXPECT_EQ(plan::json_of(uneven).at("placement").at("ranks").at(0).at("state_bytes"), alone.state_bytes);
}

}  // namespace
}  // namespace argosy::test
