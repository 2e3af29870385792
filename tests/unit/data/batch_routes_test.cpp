#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/random.hpp"
#include "data/batch_plan.hpp"
#include "loader_support.hpp"
#include "support/lognormal_lengths.hpp"

/// What holds of micro-batches and steps where the examples of a pool go several routes through the model.
namespace argosy::data {
namespace {

/// A hash of the examples of all micro-batches, in the order of steps.
std::uint64_t order_hash(const BatchPlan& plan) {
  std::uint64_t hash = 0;
  for (std::int64_t step = 0; step < plan.steps(); ++step)
    for (int j = 0; j < plan.micro_batches(step); ++j)
      hash = hash64(std::as_bytes(plan.micro_batch(step, j).examples), hash);
  return hash;
}

std::vector<Lengths> drawn_lengths(RandomStream& random, std::size_t count) {
  std::vector<Lengths> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const auto side = [&] { return static_cast<std::uint32_t>(1 + random.below(9) * random.below(12)); };
    const std::uint32_t source = side();
    lengths.push_back({source, side()});
  }
  return lengths;
}

/// A run that is resumed goes on in this order, so a change of it belongs into the changelog.
TEST(BatchRoutes, OneRouteKeepsTheOrderOfPlansWithoutRoutes) {
  RandomStream random(7, 7);
  const std::vector<Lengths> lengths = drawn_lengths(random, 20001);
  const auto hash_of = [&](const BatchPlanSettings& settings) {
    const PoolKey key{3, 1, 2};
    const std::uint64_t hash = order_hash(BatchPlan{settings, lengths, key});
    EXPECT_EQ(order_hash(BatchPlan{settings, lengths, key, std::vector<std::uint32_t>(lengths.size(), 5)}), hash);
    return hash;
  };
  EXPECT_EQ(hash_of({.micro_size = 600, .micro_batches = 4}), 16347093775023805370U);
  EXPECT_EQ(hash_of({.micro_size = 1500, .micro_batches = 7, .width_multiple = 8}), 13232631992371524812U);
  EXPECT_EQ(hash_of({.unit = BatchUnit::examples, .micro_size = 10, .micro_batches = 1}), 17567149091302101051U);
  EXPECT_EQ(hash_of({.micro_size = 4000, .micro_batches = 1000}), 3727117173030899551U) << "a single step";
}

/// Examples of routes whose numbers of pairs are as the weights, drawn in any order.
struct RoutedPool {
  std::vector<Lengths> lengths;
  std::vector<std::uint32_t> routes;
};
RoutedPool lognormal_pool(const std::vector<double>& weights) {
  RandomStream random(5, 9);
  RoutedPool pool{test::lognormal_lengths(100000), {}};
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < pool.lengths.size(); ++i) {
    double at = random.uniform() * sum;
    std::uint32_t route = 0;
    while (route + 1 < weights.size() && (at -= weights[route]) > 0) ++route;
    pool.routes.push_back(route);
  }
  return pool;
}
std::vector<double> growing_weights(std::size_t count) {
  std::vector<double> weights;
  for (std::size_t r = 0; r < count; ++r) weights.push_back(std::pow(1.3, r));
  return weights;
}

TEST(BatchRoutes, MicroBatchesHoldExamplesOfOneRouteAndAreFull) {
  constexpr BatchPlanSettings settings{.micro_size = 4096, .micro_batches = 8};
  for (const std::vector<double>& weights : {std::vector<double>(12, 1.0), growing_weights(12)}) {
    const RoutedPool pool = lognormal_pool(weights);
    const BatchPlan plan{settings, pool.lengths, {}, pool.routes};
    std::vector<int> seen(pool.lengths.size(), 0);
    double used = 0;
    for (const MicroBatch& piece : plan.all()) {
      used += static_cast<double>(piece.padded_tokens());
      EXPECT_LE(piece.padded_tokens(), 4096);
      for (const std::uint32_t example : piece.examples) {
        ++seen[example];
        ASSERT_EQ(pool.routes[example], piece.route);
      }
    }
    EXPECT_THAT(seen, testing::Each(1));
    EXPECT_GE(used / 4096 / static_cast<double>(plan.all().size()), .97);
  }
}

/// How many micro-batches of each route a step has.
std::map<std::uint32_t, std::int64_t> composition_of(const BatchPlan& plan, std::int64_t step) {
  std::map<std::uint32_t, std::int64_t> counts;
  for (int j = 0; j < plan.micro_batches(step); ++j) ++counts[plan.micro_batch(step, j).route];
  return counts;
}

/// Whatever the numbers of micro-batches are, for a route with few as well.
TEST(BatchRoutes, EachStepHasEachRouteByItsShare) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, 11);
    const std::size_t route_count = 1 + random.below(24);
    const int micro_batches = static_cast<int>(1 + random.below(20));
    std::vector<std::uint32_t> routes;
    for (std::uint32_t route = 0; route < route_count; ++route)
      routes.resize(routes.size() + 1 + static_cast<std::size_t>(std::exp(2.5 + 1.2 * random.normal())), 3 * route);
    for (std::size_t i = routes.size() - 1; i > 0; --i) std::swap(routes[i], routes[random.below(i + 1)]);
    const std::vector<Lengths> lengths(routes.size(), Lengths{5, 5});
    const BatchPlan plan{{.micro_size = 10, .micro_batches = micro_batches}, lengths, {seed}, routes};
    ASSERT_EQ(plan.all().size(), routes.size()) << "a micro-batch each";

    std::map<std::uint32_t, std::int64_t> in_full, in_last;
    std::int64_t full = 0;
    for (std::int64_t step = 0; step < plan.steps(); ++step) {
      const bool is_full = plan.micro_batches(step) == micro_batches;
      full += is_full ? 1 : 0;
      for (const auto& [route, count] : composition_of(plan, step)) (is_full ? in_full : in_last)[route] += count;
    }
    EXPECT_EQ(full, std::ssize(routes) / micro_batches);
    for (std::uint32_t r = 0; r < route_count; ++r) {
      const std::uint32_t route = 3 * r;
      const auto share = static_cast<double>(std::ranges::count(routes, route)) / static_cast<double>(routes.size());
      EXPECT_LT(std::abs(static_cast<double>(in_last[route]) -
                         share * static_cast<double>(std::ssize(routes) % micro_batches)),
                1);
      for (std::int64_t step = 0; step < plan.steps(); ++step) {
        if (plan.micro_batches(step) < micro_batches) continue;
        const std::int64_t count = composition_of(plan, step)[route];
        EXPECT_GE(count, in_full[route] / full);
        EXPECT_LE(count, (in_full[route] + full - 1) / full);
        EXPECT_LE(std::abs(static_cast<double>(count) - share * micro_batches), 1 + 1 / static_cast<double>(full));
      }
    }
  }
}

/// So that the micro-batches of a step take about the same time.
TEST(BatchRoutes, AStepHasMicroBatchesOfAboutTheSamePlaceInTheirRoutes) {
  const RoutedPool pool = lognormal_pool(growing_weights(12));
  const BatchPlan plan{{.micro_size = 4096, .micro_batches = 8}, pool.lengths, {}, pool.routes};
  std::map<std::uint32_t, std::vector<const std::uint32_t*>> pieces;  // of each route, by length
  for (const MicroBatch& piece : plan.all()) pieces[piece.route].push_back(piece.examples.data());
  std::vector<double> spreads;
  for (std::int64_t step = 0; step < plan.steps(); ++step) {
    double least = 1, most = 0;
    for (int j = 0; j < plan.micro_batches(step); ++j) {
      const MicroBatch piece = plan.micro_batch(step, j);
      const auto& own = pieces[piece.route];
      ASSERT_TRUE(std::ranges::is_sorted(own));
      const auto at = static_cast<double>(std::ranges::find(own, piece.examples.data()) - own.begin()) + .5;
      least = std::min(least, at / static_cast<double>(own.size()));
      most = std::max(most, at / static_cast<double>(own.size()));
    }
    if (plan.micro_batches(step) == 8) spreads.push_back(most - least);
  }
  std::ranges::sort(spreads);
  EXPECT_LE(spreads[spreads.size() * 95 / 100], .05);
}

class RoutedLoader : public testing::TestWithParam<std::tuple<spec::TokenLayout, std::optional<bool>>> {};

TEST_P(RoutedLoader, SaysOnAllRanksTheRoutesOfAllMicroBatchesOfAStep) {
  const auto [layout, packing] = GetParam();
  const bool pairs = layout == spec::TokenLayout::marian;
  const Shards shards{layout, {200, 90, 150}};
  BatchConfig batch = sizes(1500, 300);
  batch.packing = packing;
  constexpr int world = 2;
  const std::vector<std::uint32_t> routes = pairs ? std::vector<std::uint32_t>{2, 0, 2} : std::vector<std::uint32_t>{};
  const PoolSettings pool{.sizes = resolve_sizes(batch, world), .batch = batch, .routes = routes};
  std::vector<Loader> loaders;
  for (int rank = 0; rank < world; ++rank)
    loaders.emplace_back(shards.all(), shards.vocabulary(),
                         LoaderSettings{.pool = pool, .canonical_rank = rank, .deal = {.world = world}});
  std::set<int> found;
  std::set<std::size_t> sizes_of_steps;
  for (std::int64_t s = 0; s < loaders[0].report().steps; ++s) {
    std::vector<int> wanted(5, -1);
    std::vector<StepBatches> steps;
    for (Loader& loader : loaders) steps.push_back(loader.next());
    for (std::size_t slot = 0; slot < steps[0].batches.size(); ++slot)
      for (std::size_t rank = 0; rank < world; ++rank) {
        const Batch& made = steps[rank].batches[slot];
        if (made.empty()) continue;
        wanted.at(slot * world + rank) = static_cast<int>(made.route);
        found.insert(static_cast<int>(made.route));
        for (const std::uint64_t example : made.examples)
          EXPECT_EQ(made.route, routes.at(example < 200 ? 0 : example < 290 ? 1 : 2));
      }
    for (const StepBatches& step : steps) EXPECT_EQ(step.routes, wanted);
    sizes_of_steps.insert(5 - static_cast<std::size_t>(std::ranges::count(wanted, -1)));
  }
  EXPECT_EQ(found, pairs ? (std::set{0, 2}) : std::set{0});
  EXPECT_EQ(sizes_of_steps.size(), 2U) << "a pool with a short step is wanted here";
}

INSTANTIATE_TEST_SUITE_P(All, RoutedLoader,
                         testing::Values(std::tuple{spec::TokenLayout::marian, std::optional<bool>{}},
                                         std::tuple{spec::TokenLayout::llama, std::optional<bool>{}},
                                         std::tuple{spec::TokenLayout::llama, std::optional<bool>{false}}));

/// What is drawn anew has its route as well.
TEST(BatchRoutes, HoldWhereTransformsDraw) {
  const Shards shards{spec::TokenLayout::marian, {60, 60}, {{TokenDrop{.temperature = 0.5}}}};
  const BatchConfig batch = sizes(900, 300);
  const PoolMaker maker{
      shards.all(), shards.vocabulary(), {.sizes = resolve_sizes(batch, 1), .batch = batch, .routes = {4, 7}}};
  ASSERT_FALSE(maker.is_exact());
  const auto pool = maker.make({});
  for (std::int64_t step = 0; step < pool->steps(); ++step)
    for (int j = 0; j < 3; ++j) {
      const Batch made = pool->assemble(step, j);
      EXPECT_EQ(pool->routes(step).at(static_cast<std::size_t>(j)), made.empty() ? -1 : static_cast<int>(made.route));
      for (const std::uint64_t example : made.examples) EXPECT_EQ(made.route, example < 60 ? 4U : 7U);
    }
}

/// Else most micro-batches of many routes would be the last ones, which are not full.
TEST(BatchRoutes, APoolHasSeveralMicroBatchesOfEachRoute) {
  const std::vector<std::size_t> counts(12, 300);
  const Shards shards{spec::TokenLayout::marian, counts};
  const BatchConfig batch = sizes(400, 400);
  const auto report_of = [&](std::uint32_t routes) {
    PoolSettings settings{.sizes = resolve_sizes(batch, 1), .batch = batch};
    for (std::uint32_t c = 0; c < counts.size(); ++c) settings.routes.push_back(c % routes);
    return PoolMaker{shards.all(), shards.vocabulary(), settings}.make({})->report();
  };
  EXPECT_EQ(report_of(1).examples, report_of(2).examples);
  EXPECT_LT(report_of(2).steps, 100);
  EXPECT_GT(report_of(12).steps, 12 * 30);
  EXPECT_GT(report_of(12).fill, report_of(1).fill - .03);
}

TEST(BatchRoutes, RoutesOfOtherCorporaAreAnErrorOfOurs) {
  const Shards pairs{spec::TokenLayout::marian, {20, 20}}, lines{spec::TokenLayout::llama, {20, 20}};
  const auto fault_of = [](const Shards& shards, std::vector<std::uint32_t> routes) -> std::optional<Fault> {
    const BatchConfig batch = sizes(400, 400);
    try {
      const PoolMaker maker{shards.all(),
                            shards.vocabulary(),
                            {.sizes = resolve_sizes(batch, 1), .batch = batch, .routes = std::move(routes)}};
    } catch (const Error& error) {
      return error.fault();
    }
    return std::nullopt;
  };
  EXPECT_EQ(fault_of(pairs, {0, 1}), std::nullopt);
  EXPECT_EQ(fault_of(pairs, {0}), Fault::internal);
  EXPECT_EQ(fault_of(pairs, {0, 1, 2}), Fault::internal);
  EXPECT_EQ(fault_of(lines, {0, 0}), std::nullopt);
  EXPECT_EQ(fault_of(lines, {0, 1}), Fault::internal);
}

}  // namespace
}  // namespace argosy::data
