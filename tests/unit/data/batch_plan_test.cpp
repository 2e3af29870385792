#include "data/batch_plan.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "support/lognormal_lengths.hpp"

namespace argosy::data {
namespace {

constexpr BatchPlanSettings default_settings{.micro_size = 4096, .micro_batches = 4};

double fill(const BatchPlan& plan, const BatchPlanSettings& settings) {
  double used = 0;
  for (const MicroBatch& piece : plan.all()) used += static_cast<double>(piece.padded_tokens());
  return used / static_cast<double>(settings.micro_size) / static_cast<double>(plan.all().size());
}

/// The share of the rows' positions that hold tokens.
struct Efficiency {
  double source, target;
};

Efficiency efficiency(const BatchPlan& plan) {
  double source = 0, target = 0, source_padded = 0, target_padded = 0;
  for (const MicroBatch& piece : plan.all()) {
    const std::int64_t rows = std::ssize(piece.examples);
    source += static_cast<double>(piece.src_tokens);
    target += static_cast<double>(piece.tgt_tokens);
    source_padded += static_cast<double>(rows * piece.source_width);
    target_padded += static_cast<double>(rows * piece.target_width);
  }
  return {source / source_padded, target / target_padded};
}

TEST(BatchPlan, FillsBatchesAndBalancesSteps) {
  const std::vector<Lengths> lengths = test::lognormal_lengths(100000);
  const BatchPlan plan{default_settings, lengths, {}};
  EXPECT_GE(fill(plan, default_settings), 0.99);
  EXPECT_LE(fill(plan, default_settings), 1.0);
  EXPECT_GE(efficiency(plan).source, 0.97);
  EXPECT_GE(efficiency(plan).target, 0.97);
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

TEST(BatchPlan, RoundsWidthsUpToTheMultiple) {
  const std::vector<Lengths> lengths = test::lognormal_lengths(20000);
  BatchPlanSettings settings = default_settings;
  settings.width_multiple = 8;
  const BatchPlan plan{settings, lengths, {}};
  for (const MicroBatch& micro_batch : plan.all()) {
    EXPECT_EQ(micro_batch.source_width % 8, 0);
    EXPECT_EQ(micro_batch.target_width % 8, 0);
    EXPECT_LE(micro_batch.padded_tokens(), 4096);
  }
  EXPECT_LT(efficiency(plan).target, efficiency(BatchPlan{default_settings, lengths, {}}).target);
}

TEST(BatchPlan, TakesEachExampleOnceAndCountsRealLengths) {
  const std::vector<Lengths> lengths = test::lognormal_lengths(5000);
  const BatchPlan plan{default_settings, lengths, {}};
  std::vector<std::uint32_t> seen;
  for (std::int64_t step = 0; step < plan.steps(); ++step) {
    for (int j = 0; j < plan.micro_batches(step); ++j) {
      const MicroBatch micro_batch = plan.micro_batch(step, j);
      std::int64_t src = 0, tgt = 0, widest_source = 0, widest_target = 0;
      for (const std::uint32_t example : micro_batch.examples) {
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
  }
  std::sort(seen.begin(), seen.end());
  std::vector<std::uint32_t> all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
}

TEST(BatchPlan, ShufflesStepsByItsKeyAlone) {
  const std::vector<Lengths> lengths = test::lognormal_lengths(5000);
  const auto widths = [&](const PoolKey& key) {
    const BatchPlan plan{default_settings, lengths, key};
    std::vector<std::int64_t> found;
    for (std::int64_t step = 0; step < plan.steps(); ++step)
      found.push_back(plan.micro_batch(step, 0).padded_tokens() * 1000 + plan.micro_batch(step, 0).target_width);
    return found;
  };
  EXPECT_EQ(widths({1, 2, 3}), widths({1, 2, 3}));
  for (const PoolKey& other : {PoolKey{2, 2, 3}, PoolKey{1, 3, 3}, PoolKey{1, 2, 4}})
    EXPECT_NE(widths({1, 2, 3}), widths(other));
}

TEST(BatchPlan, LeavesOutAndCountsWhatExceedsAMicroBatchAlone) {
  std::vector<Lengths> lengths = test::lognormal_lengths(1000);
  lengths[17] = {4000, 97};
  const BatchPlan plan{default_settings, lengths, {}};
  EXPECT_EQ(plan.oversized(), 1);
  for (const MicroBatch& micro_batch : plan.all())
    EXPECT_EQ(std::count(micro_batch.examples.begin(), micro_batch.examples.end(), 17U), 0);
  EXPECT_EQ((BatchPlan{default_settings, std::vector<Lengths>(3, Lengths{4000, 97}), {}}).steps(), 0);
}

TEST(BatchPlan, GivesEmptyMicroBatchesAfterTheLastOnes) {
  const std::vector<Lengths> lengths(9, Lengths{10, 10});
  const BatchPlan plan{{.micro_size = 20, .micro_batches = 4}, lengths, {}};
  ASSERT_EQ(plan.steps(), 3);
  std::vector<int> sizes;
  for (std::int64_t step = 0; step < 3; ++step) {
    sizes.push_back(plan.micro_batches(step));
    EXPECT_EQ(plan.micro_batch(step, 3).examples.empty(), sizes.back() < 4);
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int>{1, 4, 4}));
}

TEST(BatchPlan, CountsRowsUnderUnitExamples) {
  const std::vector<Lengths> lengths = test::lognormal_lengths(103);
  const BatchPlan plan{{.unit = BatchUnit::examples, .micro_size = 10, .micro_batches = 1}, lengths, {}};
  EXPECT_EQ(plan.steps(), 11);
  for (const MicroBatch& micro_batch : plan.all()) EXPECT_LE(micro_batch.examples.size(), 10U);
}

}  // namespace
}  // namespace argosy::data
