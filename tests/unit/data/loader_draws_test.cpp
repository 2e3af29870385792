#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "loader_support.hpp"

/// What a loader draws for each example in each epoch anew: noise, and shifts of positions.
namespace argosy::data {
namespace {

/// Chance makes other ids in each epoch, but the same for any number of ranks and workers, and after a resume.
TEST(LoaderOfPairs, DrawsAnewInEachEpochAndAlikeForAnyRanksAndWorkers) {
  const Shards shards{spec::TokenLayout::marian, {200}, {{TokenDrop{.temperature = 0.5}}}};
  const BatchConfig batch = sizes(2000, 500);
  EXPECT_FALSE(shards.all().is_exact());
  using Rows = std::map<std::uint64_t, std::vector<std::int64_t>>;  // the source of each example
  const auto epochs = [&](int world, int workers, const Cursor& from) {
    std::vector<Rows> found;
    for (int rank = 0; rank < world; ++rank) {
      Loader loader = shards.loader(batch, rank, world, from, workers);
      EXPECT_FALSE(loader.is_exact());
      while (true) {
        const StepBatches step = loader.next();
        const auto epoch = static_cast<std::size_t>(step.at.pool.epoch);
        if (epoch == 2) break;
        found.resize(std::max(found.size(), epoch + 1));
        std::int64_t tgt_tokens = 0;
        for (const Batch& made : step.batches) {
          tgt_tokens += made.tgt_tokens;
          EXPECT_LE(made.padded_tokens, 500);
          for (std::size_t r = 0; r < made.examples.size(); ++r) {
            const auto row = made.source.begin() + static_cast<std::ptrdiff_t>(r) * made.source_width;
            found[epoch][made.examples[r]].assign(row, row + made.source_lengths[r]);
          }
        }
        EXPECT_EQ(step.totals.tgt_tokens, tgt_tokens) << "of this rank alone";
      }
    }
    return found;
  };
  const std::vector<Rows> alone = epochs(1, 1, {});
  ASSERT_EQ(alone.size(), 2U);
  EXPECT_EQ(alone[0].size(), alone[1].size());
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_EQ(epochs(3, 1, {}), alone);
  EXPECT_EQ(epochs(2, 3, {}), alone);
  Loader first = shards.loader(batch);
  const Cursor from = first.next().next;
  EXPECT_EQ(epochs(1, 1, from).at(1), alone[1]);
  Example plain;
  std::size_t shorter = 0;
  for (const auto& [example, source] : alone[0]) {
    shards.all().read(example, std::nullopt, plain);
    EXPECT_EQ(source.back(), plain.source.back());
    shorter += source.size() < plain.source.size() ? 1 : 0;
  }
  EXPECT_GT(shorter, alone[0].size() / 4);
}

TEST(LoaderOfPairs, CountsExamplesMadeWithoutNoise) {
  const auto share = [](const std::vector<TransformConfig>& transforms) {
    const Shards shards{spec::TokenLayout::marian, {200}, transforms};
    Loader loader = shards.loader(sizes(2000, 500));
    double examples = 0, without = 0;
    for (int step = 0; step < 10; ++step)
      for (const Batch& batch : loader.next().batches) {
        examples += static_cast<double>(batch.rows);
        without += static_cast<double>(batch.without_noise);
      }
    return without / examples;
  };
  EXPECT_EQ(share({{TokenDrop{}}}), 0);
  // These shards have no room for a prefix.
  EXPECT_NEAR(share({{Prefix{.source = {"\u2581God"}, .probability = .5}}}), .5, .15);
}

/// One shift for each example and side, new in each epoch, and the same for any ranks, workers and sizes of batches.
TEST(LoaderOfPairs, ShiftsThePositionsOfEachExample) {
  Shards shards{spec::TokenLayout::marian, {200}};
  const auto batch = [&](std::int64_t micro_size) { return sizes(4 * micro_size, micro_size); };
  EXPECT_TRUE(shards.loader(batch(500)).next().batches.at(0).source_positions.empty());
  EXPECT_TRUE(shards.loader(batch(500)).next().batches.at(0).positions.empty());
  shards.position_shift_max = 9;
  using Found = std::map<std::uint64_t, std::pair<std::int64_t, std::int64_t>>;  // shifts of each example
  const auto shift_of = [](const std::vector<std::int64_t>& positions, std::int64_t width, std::int64_t length,
                           std::size_t row) {
    const auto first = positions.begin() + static_cast<std::ptrdiff_t>(row) * width;
    for (std::int64_t i = 0; i < width; ++i) EXPECT_EQ(first[i], i < length ? *first + i : 0);
    return *first;
  };
  const auto epochs = [&](int world, int workers, std::int64_t micro_size, const Cursor& from) {
    std::vector<Found> found(2);
    for (int rank = 0; rank < world; ++rank) {
      Loader loader = shards.loader(batch(micro_size), rank, world, from, workers);
      for (StepBatches step = loader.next(); step.at.pool.epoch < 2; step = loader.next()) {
        for (const Batch& made : step.batches) {
          for (std::size_t r = 0; r < made.examples.size(); ++r)
            found[static_cast<std::size_t>(step.at.pool.epoch)][made.examples[r]] = {
                shift_of(made.source_positions, made.source_width, made.source_lengths[r], r),
                shift_of(made.positions, made.target_width, made.target_lengths[r], r)};
        }
      }
    }
    return found;
  };
  const std::vector<Found> alone = epochs(1, 1, 500, {});
  EXPECT_EQ(epochs(3, 1, 500, {}), alone);
  EXPECT_EQ(epochs(2, 3, 500, {}), alone);
  EXPECT_EQ(epochs(1, 1, 700, {}), alone);
  Loader first = shards.loader(batch(500));
  EXPECT_EQ(epochs(1, 1, 500, first.next().next).at(1), alone[1]);
  std::set<std::int64_t> sources, targets;
  int alike = 0, kept = 0;
  for (const auto& [example, shifts] : alone[0]) {
    sources.insert(shifts.first);
    targets.insert(shifts.second);
    alike += shifts.first == shifts.second ? 1 : 0;
    kept += shifts == alone[1].at(example) ? 1 : 0;
  }
  for (const auto& values : {sources, targets})
    EXPECT_EQ(std::tuple(values.size(), *values.begin(), *values.rbegin()), std::tuple(10, 0, 9));
  EXPECT_LT(alike, 50) << "20 of 200 by chance";
  EXPECT_LT(kept, 20) << "2 of 200 by chance";
}

TEST(LoaderOfDocuments, ShiftsThePositionsOfEachDocument) {
  Shards shards{spec::TokenLayout::llama, {200}};
  shards.position_shift_max = 3;
  for (const bool packing : {true, false}) {
    BatchConfig config = sizes(512, 128);
    config.packing = packing;
    Loader loader = shards.loader(config);
    std::set<std::int64_t> shifts;
    for (int step = 0; step < 10; ++step) {
      const Batch batch = loader.next().batches.at(0);
      for (std::size_t i = 0; i < batch.segments.size(); ++i) {
        const bool begins =
            static_cast<std::int64_t>(i) % batch.target_width == 0 || batch.segments[i] != batch.segments[i - 1];
        if (batch.segments[i] == -1)
          EXPECT_EQ(batch.positions[i], 0);
        else if (begins)
          shifts.insert(batch.positions[i]);
        else
          EXPECT_EQ(batch.positions[i], batch.positions[i - 1] + 1);
      }
    }
    EXPECT_EQ(std::tuple(shifts.size(), *shifts.begin(), *shifts.rbegin()), std::tuple(4, 0, 3)) << packing;
  }
}

}  // namespace
}  // namespace argosy::data
