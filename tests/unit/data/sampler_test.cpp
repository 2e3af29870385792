#include "data/sampler.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::data {
namespace {

/// Lengths of sentence pairs: a = exp(3.1 + .6 z1), b = a·exp(.2 z2), rounded, clipped to 1..200, EOS added (mean 28).
std::vector<Lengths> lognormal_lengths(std::size_t count, std::uint64_t seed = 3) {
  RandomStream random{seed, 1};
  const auto clipped = [](double x) { return static_cast<std::uint32_t>(std::clamp(std::round(x), 1.0, 200.0)) + 1; };
  std::vector<Lengths> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = std::exp(3.1 + 0.6 * random.normal()), b = a * std::exp(0.2 * random.normal());
    lengths.push_back({clipped(a), clipped(b)});
  }
  return lengths;
}

Sampler make_sampler(const std::vector<Lengths>& lengths, SamplerSettings settings) {
  return Sampler{settings, {{lengths, 1.0}}};
}

constexpr SamplerSettings default_settings{.seed = 1, .micro_size = 4096, .micro_batches = 4};

std::vector<MicroBatch> micro_batches_of(const EpochPlan& plan) {
  std::vector<MicroBatch> all;
  for (std::int64_t step = 0; step < plan.steps(); ++step)
    for (int j = 0; j < plan.micro_batches(step); ++j) all.push_back(plan.micro_batch(step, j));
  return all;
}

TEST(Sampler, FillsBatchesAndBalancesSteps) {
  const std::vector<Lengths> lengths = lognormal_lengths(100000);
  const EpochPlan plan = make_sampler(lengths, default_settings).plan(0);
  EXPECT_GE(plan.fill(), 0.99);
  EXPECT_LE(plan.fill(), 1.0);
  EXPECT_GE(plan.target_efficiency(), 0.94);
  std::vector<double> spreads;
  for (std::int64_t step = 0; step < plan.steps(); ++step) {
    if (plan.micro_batches(step) < 4) continue;
    std::int64_t least = 1 << 30, most = 0;
    for (int j = 0; j < 4; ++j) {
      const std::int64_t size = plan.micro_batch(step, j).padded_tokens();
      EXPECT_LE(size, 4096);
      least = std::min(least, size);
      most = std::max(most, size);
    }
    spreads.push_back(static_cast<double>(most - least) / static_cast<double>(most));
  }
  std::sort(spreads.begin(), spreads.end());
  EXPECT_LE(spreads[spreads.size() * 95 / 100], 0.05);
}

TEST(Sampler, RoundsWidthsUpToTheMultiple) {
  const std::vector<Lengths> lengths = lognormal_lengths(20000);
  SamplerSettings settings = default_settings;
  settings.width_multiple = 8;
  const EpochPlan plan = make_sampler(lengths, settings).plan(0);
  for (const MicroBatch& micro_batch : micro_batches_of(plan)) {
    EXPECT_EQ(micro_batch.source_width % 8, 0);
    EXPECT_EQ(micro_batch.target_width % 8, 0);
    EXPECT_LE(micro_batch.padded_tokens(), 4096);
  }
  EXPECT_LT(plan.target_efficiency(), make_sampler(lengths, default_settings).plan(0).target_efficiency());
}

TEST(Sampler, DrawsEachExampleOnceAnEpochAndCountsRealLengths) {
  const std::vector<Lengths> lengths = lognormal_lengths(5000);
  const Sampler sampler = make_sampler(lengths, default_settings);
  for (const std::int64_t epoch : {0, 1, 7}) {
    const EpochPlan plan = sampler.plan(epoch);
    std::vector<std::uint64_t> seen;
    for (const MicroBatch& micro_batch : micro_batches_of(plan)) {
      std::int64_t src = 0, tgt = 0, widest_source = 0, widest_target = 0;
      for (const std::uint64_t example : micro_batch.examples) {
        src += lengths[example].source;
        tgt += lengths[example].target;
        widest_source = std::max<std::int64_t>(widest_source, lengths[example].source);
        widest_target = std::max<std::int64_t>(widest_target, lengths[example].target);
        seen.push_back(example);
      }
      EXPECT_EQ(std::tuple(micro_batch.src_tokens, micro_batch.tgt_tokens), std::tuple(src, tgt));
      EXPECT_EQ(std::tuple(micro_batch.source_width, micro_batch.target_width),
                std::tuple(widest_source, widest_target));
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::uint64_t> all(lengths.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all);
  }
}

TEST(Sampler, IsAPureFunctionOfSeedAndEpoch) {
  const std::vector<Lengths> lengths = lognormal_lengths(5000);
  SamplerSettings settings = default_settings;
  settings.pool = 1000;
  const auto steps = [&](std::uint64_t seed, std::int64_t epoch) {
    settings.seed = seed;
    std::vector<std::uint64_t> first;
    const EpochPlan plan = make_sampler(lengths, settings).plan(epoch);
    for (const MicroBatch& micro_batch : micro_batches_of(plan)) first.push_back(micro_batch.examples.front());
    return first;
  };
  EXPECT_EQ(steps(1, 3), steps(1, 3));
  EXPECT_NE(steps(1, 3), steps(1, 4));
  EXPECT_NE(steps(1, 3), steps(2, 3));
}

TEST(Sampler, ShufflesStepsWithinAPoolOnly) {
  // Pools follow each other: every example of a step of the first pool was among the first draws.
  const std::vector<Lengths> lengths = lognormal_lengths(20000);
  SamplerSettings settings{.seed = 1, .micro_size = 1024, .micro_batches = 1, .pool = 5000};
  const Sampler sampler = make_sampler(lengths, settings);
  const std::vector<std::uint64_t> draws = sampler.draws(0);
  const std::set<std::uint64_t> first_pool(draws.begin(), draws.begin() + 5000);
  const EpochPlan plan = sampler.plan(0);
  std::size_t taken = 0;
  std::vector<std::int64_t> widths;
  for (std::int64_t step = 0; taken < first_pool.size(); ++step) {
    const MicroBatch micro_batch = plan.micro_batch(step, 0);
    for (const std::uint64_t example : micro_batch.examples) EXPECT_TRUE(first_pool.contains(example));
    taken += micro_batch.examples.size();
    widths.push_back(std::max(micro_batch.source_width, micro_batch.target_width));  // sorted without a shuffle
  }
  EXPECT_FALSE(std::is_sorted(widths.begin(), widths.end()));
}

TEST(Sampler, HoldsAtLeastTheExamplesOf64StepsInAPool) {
  const std::vector<Lengths> lengths = lognormal_lengths(20000);
  SamplerSettings settings{.seed = 1, .micro_size = 1024, .micro_batches = 2, .pool = 1};
  const EpochPlan plan = make_sampler(lengths, settings).plan(0);
  // Every pool may end in a short step: there are at most a 64th of them.
  std::int64_t short_steps = 0;
  for (std::int64_t step = 0; step < plan.steps(); ++step) short_steps += plan.micro_batches(step) < 2 ? 1 : 0;
  EXPECT_LE(short_steps, plan.steps() / 64 + 1);
}

TEST(Sampler, DropsAndCountsWhatExceedsAMicroBatchAlone) {
  std::vector<Lengths> lengths = lognormal_lengths(1000);
  lengths[17] = {4000, 97};
  const EpochPlan plan = make_sampler(lengths, default_settings).plan(0);
  EXPECT_EQ(plan.dropped_oversized(), 1);
  for (const MicroBatch& micro_batch : micro_batches_of(plan))
    EXPECT_EQ(std::count(micro_batch.examples.begin(), micro_batch.examples.end(), 17U), 0);
  const std::vector<Lengths> oversized(3, Lengths{4000, 97});
  EXPECT_THROW(make_sampler(oversized, default_settings), Error);
  EXPECT_THROW(make_sampler({}, default_settings), Error);
}

TEST(Sampler, GivesEmptyMicroBatchesBehindAPoolsEnd) {
  const std::vector<Lengths> lengths(9, Lengths{10, 10});
  const EpochPlan plan = make_sampler(lengths, {.micro_size = 20, .micro_batches = 4}).plan(0);
  ASSERT_EQ(plan.steps(), 3);
  std::vector<int> sizes;
  for (std::int64_t step = 0; step < 3; ++step) {
    sizes.push_back(plan.micro_batches(step));
    EXPECT_EQ(plan.micro_batch(step, 3).examples.empty(), sizes.back() < 4);
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int>{1, 4, 4}));
}

TEST(Sampler, CountsRowsUnderUnitExamples) {
  const std::vector<Lengths> lengths = lognormal_lengths(103);
  const EpochPlan plan =
      make_sampler(lengths, {.unit = BatchUnit::examples, .micro_size = 10, .micro_batches = 1}).plan(0);
  EXPECT_EQ(plan.steps(), 11);
  for (std::int64_t step = 0; step < plan.steps(); ++step) EXPECT_LE(plan.micro_batch(step, 0).examples.size(), 10U);
}

TEST(Sampler, MixesCorporaByWeightAndTemperature) {
  const std::vector<Lengths> big(8000, Lengths{10, 10}), small(1000, Lengths{10, 20});
  const auto shares = [&](double temperature, double weight) {
    SamplerSettings settings = default_settings;
    settings.temperature = temperature;
    return Sampler{settings, {{big, 1.0}, {small, weight}}}.shares();
  };
  // T = 1 with equal weights: every example once a corpus epoch.
  EXPECT_NEAR(shares(1, 1)[1], 1000.0 / 9000, 1e-12);
  // tgt_tokens 80,000 and 20,000: token shares 4 : 1 ^ (1/T); the small corpus has twice the length, so half the
  // examples.
  EXPECT_NEAR(shares(1e9, 1)[1], 0.5 / 1.5, 1e-6);
  EXPECT_NEAR(shares(2, 1)[1], 0.5 / 2.5, 1e-12);
  EXPECT_NEAR(shares(1, 4)[1], 0.5 / 1.5, 1e-12);
}

TEST(Sampler, KeepsToTheSharesAndPassesThroughACorpusEvenly) {
  const std::vector<Lengths> big(800, Lengths{10, 10}), small(100, Lengths{10, 10});
  SamplerSettings settings = default_settings;
  settings.temperature = 1e9;
  const Sampler sampler{settings, {{big, 1.0}, {small, 1.0}}};
  std::map<std::uint64_t, int> times;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::int64_t drawn = 0, from_small = 0;
    for (const std::uint64_t example : sampler.draws(epoch)) {
      ++drawn;
      from_small += example >= 800 ? 1 : 0;
      ++times[example];
      EXPECT_LT(std::abs(static_cast<double>(from_small) - 0.5 * static_cast<double>(drawn)), 1.2);
    }
    EXPECT_EQ(drawn, 900);
    EXPECT_EQ(sampler.drawn_before(epoch + 1)[1], 450 * (epoch + 1));
  }
  // 1,350 draws of 100 examples: each 13 or 14 times.
  for (std::uint64_t example = 800; example < 900; ++example) EXPECT_THAT(times[example], testing::AnyOf(13, 14));
}

}  // namespace
}  // namespace argosy::data
