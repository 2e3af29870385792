#include "data/sampler.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/error.hpp"

namespace argosy::data {
namespace {

using testing::Each;

/// The pools of an epoch, from where it begins.
std::vector<Sampler::Pool> epoch_of(const Sampler& sampler, PoolBegin at) {
  std::vector<Sampler::Pool> pools;
  const std::int64_t epoch = at.epoch;
  while (at.epoch == epoch) {
    pools.push_back(sampler.draw(at));
    at = pools.back().next;
  }
  return pools;
}

std::vector<std::uint64_t> examples_of(const std::vector<Sampler::Pool>& pools) {
  std::vector<std::uint64_t> examples;
  for (const Sampler::Pool& pool : pools)
    for (const Drawn& draw : pool.draws) examples.push_back(draw.example);
  return examples;
}

TEST(Sampler, DrawsEachExampleOnceAnEpoch) {
  const Sampler sampler{{.seed = 3, .pool = 700}, {{.size = 5000, .tgt_tokens = 9e4}}};
  EXPECT_EQ(sampler.pools_in_epoch(), 7);
  PoolBegin at;
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<Sampler::Pool> pools = epoch_of(sampler, at);
    ASSERT_EQ(std::ssize(pools), 7);
    std::vector<std::uint64_t> examples = examples_of(pools), all(5000);
    EXPECT_FALSE(std::ranges::is_sorted(examples));
    std::ranges::sort(examples);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(examples, all);
    for (const Drawn& draw : pools.front().draws) EXPECT_EQ(draw.pass, epoch);
    for (const Sampler::Pool& pool : pools) EXPECT_GE(std::ssize(pool.draws), 700);
    at = pools.back().next;
  }
}

TEST(Sampler, IsAPureFunctionOfSeedAndPool) {
  const auto draws = [](std::uint64_t seed, const PoolBegin& at) {
    const Sampler sampler{{.seed = seed, .pool = 1000}, {{.size = 5000, .tgt_tokens = 9e4}}};
    std::vector<std::uint64_t> examples;
    for (const Drawn& draw : sampler.draw(at).draws) examples.push_back(draw.example);
    return examples;
  };
  const PoolBegin second = Sampler{{.pool = 1000}, {{.size = 5000, .tgt_tokens = 9e4}}}.draw({}).next;
  EXPECT_EQ(draws(1, second), draws(1, second));
  EXPECT_NE(draws(1, second), draws(1, {}));
  EXPECT_NE(draws(1, second), draws(2, second));
  EXPECT_NE(draws(1, {.epoch = 1}), draws(1, {}));
}

TEST(Sampler, MixesCorporaByWeightAndTemperature) {
  const auto share = [&](double temperature, double weight) {
    return Sampler{{.temperature = temperature},
                   {{.size = 8000, .tgt_tokens = 8e4}, {.size = 1000, .tgt_tokens = 2e4, .weight = weight}}}
        .shares()[1];
  };
  // T = 1 with equal weights: every example once a corpus epoch.
  EXPECT_NEAR(share(1, 1), 1000.0 / 9000, 1e-12);
  // Token shares 4 : 1 ^ (1/T); the small corpus has twice the length, so half the examples.
  EXPECT_NEAR(share(1e9, 1), 0.5 / 1.5, 1e-6);
  EXPECT_NEAR(share(2, 1), 0.5 / 2.5, 1e-12);
  EXPECT_NEAR(share(1, 4), 0.5 / 1.5, 1e-12);
}

TEST(Sampler, KeepsToTheSharesAndPassesThroughACorpusEvenly) {
  const Sampler sampler{{.pool = 130, .temperature = 1e9},
                        {{.size = 800, .tgt_tokens = 8e3}, {.size = 100, .tgt_tokens = 1e3}}};
  std::map<std::uint64_t, int> times;
  std::int64_t drawn = 0, from_small = 0;
  PoolBegin at;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const Sampler::Pool& pool : epoch_of(sampler, at)) {
      for (const Drawn& draw : pool.draws) {
        ++drawn;
        from_small += draw.corpus;
        EXPECT_EQ(draw.corpus == 1, draw.example >= 800);
        ++times[draw.example];
        EXPECT_LT(std::abs(static_cast<double>(from_small) - 0.5 * static_cast<double>(drawn)), 2.5);
      }
      EXPECT_EQ(pool.next.drawn[1], from_small);
      EXPECT_THAT(pool.next.owed, Each(testing::AllOf(testing::Gt(-1), testing::Lt(1))));
      at = pool.next;
    }
    EXPECT_EQ(drawn, 900 * (epoch + 1));
  }
  // 1,350 draws of 100 examples: each 13 or 14 times.
  for (std::uint64_t example = 800; example < 900; ++example) EXPECT_THAT(times[example], testing::AnyOf(13, 14));
}

TEST(Sampler, DrawsFromACorpusBetweenItsStartAndItsEnd) {
  using Unit = config::Period::Unit;
  const auto from_second = [](const DrawnCorpus& second, PoolBegin at) {
    const Sampler sampler{{.pool = 100}, {{.size = 500, .tgt_tokens = 5e3}, second}};
    std::set<std::uint32_t> corpora;
    for (const Drawn& draw : sampler.draw(at).draws) corpora.insert(draw.corpus);
    return corpora.contains(1);
  };
  const DrawnCorpus second{.size = 500, .tgt_tokens = 5e3};
  DrawnCorpus late = second, early = second;
  late.start = {10, Unit::step};
  early.end = config::Period{10, Unit::step};
  EXPECT_FALSE(from_second(late, {.steps = 9}));
  EXPECT_TRUE(from_second(late, {.steps = 10}));
  EXPECT_TRUE(from_second(early, {.steps = 9}));
  EXPECT_FALSE(from_second(early, {.steps = 10}));
  late.start = {1000, Unit::tgt_token};
  EXPECT_FALSE(from_second(late, {.steps = 999, .tgt_tokens = 999}));
  EXPECT_TRUE(from_second(late, {.tgt_tokens = 1000}));
  late.start = {1.5, Unit::epoch};
  EXPECT_FALSE(from_second(late, {.epoch = 1, .pool = 4}));
  EXPECT_TRUE(from_second(late, {.epoch = 1, .pool = 5}));
  const Sampler none{{.pool = 100}, {early}};
  EXPECT_NO_THROW((void)none.draw({}));
  EXPECT_THROW((void)none.draw({.steps = 10}), Error);
}

TEST(Sampler, FitsAnOldOrForeignPlaceToItsCorporaAndPools) {
  const Sampler sampler{{.pool = 100}, {{.size = 500, .tgt_tokens = 5e3}, {.size = 300, .tgt_tokens = 3e3}}};
  EXPECT_THAT(sampler.fitting({.epoch = 2}).drawn, testing::ElementsAre(1000, 600));
  EXPECT_EQ(sampler.fitting({.epoch = 2, .pool = 8}).epoch, 3);
  EXPECT_THAT(sampler.fitting({.epoch = 1, .drawn = {1, 2, 3}, .owed = {0, 0, 0}}).drawn,
              testing::ElementsAre(500, 300));
  const PoolBegin good{.epoch = 1, .pool = 3, .drawn = {1, 2}, .owed = {0.5, -0.5}};
  EXPECT_EQ(sampler.fitting(good), good);
}

TEST(Sampler, RefusesNothingToDraw) {
  EXPECT_THROW((Sampler{{}, {}}), Error);
  EXPECT_THROW((Sampler{{}, {DrawnCorpus{}}}), Error);
}

}  // namespace
}  // namespace argosy::data
