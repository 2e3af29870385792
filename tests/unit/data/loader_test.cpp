#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "loader_support.hpp"

namespace argosy::data {
namespace {

/// What all ranks of a world compute in the first `steps` steps: labels by step, whatever rank has them.
std::vector<std::multiset<std::vector<std::int64_t>>> labels_of(const Shards& shards, const BatchConfig& batch,
                                                                int world, int steps) {
  std::vector<std::multiset<std::vector<std::int64_t>>> by_step(static_cast<std::size_t>(steps));
  for (int rank = 0; rank < world; ++rank) {
    Loader loader = shards.loader(batch, rank, world);
    for (auto& found : by_step) {
      const StepBatches step = loader.next();
      EXPECT_EQ(static_cast<int>(step.batches.size()), resolve_sizes(batch, world).accumulation);
      for (const Batch& micro_batch : step.batches)
        if (!micro_batch.empty()) found.insert(micro_batch.target_labels);
    }
  }
  return by_step;
}

class EachTask : public testing::TestWithParam<std::tuple<spec::TokenLayout, std::optional<bool>>> {
 protected:
  [[nodiscard]] static BatchConfig batch(std::int64_t global_size, std::int64_t micro_size) {
    BatchConfig config = sizes(global_size, micro_size);
    config.packing = std::get<1>(GetParam());
    return config;
  }
  const Shards shards_{std::get<0>(GetParam()), {300}};
};

TEST_P(EachTask, ComputesTheSameMicroBatchesOnAnyNumberOfRanks) {
  const auto alone = labels_of(shards_, batch(4000, 1000), 1, 6);
  for (const int world : {2, 3, 4}) EXPECT_TRUE(labels_of(shards_, batch(4000, 1000), world, 6) == alone) << world;
}

TEST_P(EachTask, TellsEveryRankTheCountsOfTheWholeStep) {
  constexpr int world = 3;
  std::vector<Loader> loaders;
  for (int rank = 0; rank < world; ++rank) loaders.push_back(shards_.loader(batch(4000, 1000), rank, world));
  for (int s = 0; s < 12; ++s) {
    std::int64_t src = 0, tgt = 0, padded = 0;
    std::vector<StepBatches> steps;
    for (Loader& loader : loaders) {
      steps.push_back(loader.next());
      for (const Batch& micro_batch : steps.back().batches) {
        src += micro_batch.src_tokens;
        tgt += micro_batch.tgt_tokens;
        padded += micro_batch.padded_tokens;
      }
    }
    for (const StepBatches& step : steps) {
      EXPECT_EQ(std::tuple(step.totals.tgt_tokens, step.totals.src_tokens, step.totals.padded_tokens),
                std::tuple(tgt, src, padded));
      EXPECT_EQ(step.at, steps[0].at);
    }
  }
}

TEST_P(EachTask, GoesOnAtACursorAsIfNothingHadHappened) {
  Loader through = shards_.loader(batch(4000, 1000));
  std::vector<StepBatches> steps;
  const std::int64_t count = through.report().steps + 3;  // into the second epoch
  for (std::int64_t s = 0; s < count; ++s) steps.push_back(through.next());
  EXPECT_EQ(steps.back().at.pool.epoch, 1);
  for (const std::int64_t s : {std::int64_t{1}, count - 5, count - 4, count - 3, count - 2}) {
    const auto at = static_cast<std::size_t>(s);
    const StepBatches step = shards_.loader(batch(4000, 1000), 0, 1, steps[at - 1].next).next();
    EXPECT_EQ(step.at, steps[at].at);
    EXPECT_EQ(step.next, steps[at].next);
    ASSERT_EQ(step.batches.size(), steps[at].batches.size());
    for (std::size_t b = 0; b < step.batches.size(); ++b)
      EXPECT_EQ(step.batches[b].target_labels, steps[at].batches[b].target_labels);
  }
  EXPECT_NEAR(steps[static_cast<std::size_t>(count) - 4].epochs_done, 1.0, 1e-12);
}

TEST_P(EachTask, GoesOnInALaterPoolByItsBeginOrByTheStepsOfTheEpoch) {
  BatchConfig config = batch(64, 64);
  config.pool = 1;
  Loader through = shards_.loader(config);
  ASSERT_GT(through.pools_in_epoch(), 1);
  std::vector<StepBatches> steps;
  while (steps.empty() || steps.back().next.pool.epoch == 0) steps.push_back(through.next());
  for (std::size_t s = 1; s < steps.size(); s += 17) {
    for (const Cursor& from : {steps[s - 1].next, Cursor{{}, static_cast<std::int64_t>(s)}}) {
      const StepBatches step = shards_.loader(config, 0, 1, from).next();
      EXPECT_EQ(step.at, steps[s].at);
      EXPECT_EQ(step.batches.at(0).target_labels, steps[s].batches.at(0).target_labels);
    }
  }
  EXPECT_EQ(steps.back().next.pool.steps, std::ssize(steps));
  EXPECT_NEAR(steps.back().epochs_done, 1.0, 1e-12);
}

TEST_P(EachTask, HandsOutTheSameStepsFromAnyNumberOfWorkers) {
  Loader alone = shards_.loader(batch(2000, 500));
  std::vector<StepBatches> steps;
  for (int s = 0; s < 60; ++s) steps.push_back(alone.next());
  EXPECT_GT(steps.back().at.pool.epoch, 0);
  for (const int workers : {2, 3, 4}) {
    Loader loader = shards_.loader(batch(2000, 500), 0, 1, {}, workers);
    for (const StepBatches& wanted : steps) {
      const StepBatches step = loader.next();
      ASSERT_EQ(step.at, wanted.at);
      for (std::size_t b = 0; b < step.batches.size(); ++b)
        EXPECT_EQ(step.batches[b].target_labels, wanted.batches[b].target_labels);
    }
  }
}

TEST_P(EachTask, TrainsOnEveryLabelOnceAnEpoch) {
  Loader loader = shards_.loader(batch(4000, 1000));
  std::map<std::int64_t, std::int64_t> seen, wanted;
  for (std::int64_t s = 0; s < loader.report().steps; ++s)
    for (const Batch& micro_batch : loader.next().batches)
      for (const std::int64_t label : micro_batch.target_labels) ++seen[label];
  seen.erase(no_label);
  Example example;
  for (std::uint64_t i = 0; i < shards_.all().size(); ++i) {
    shards_.all().read(i, std::nullopt, example);
    for (const std::int32_t id : example.target) ++wanted[id];
  }
  EXPECT_EQ(seen, wanted);
}

/// Every number of the section at its limits: refused, or batches as large as the text and no larger.
TEST_P(EachTask, ExtremeSizesMakeNoLargeBatches) {
  using Number = std::optional<std::int64_t>;
  const std::vector<std::pair<std::string, std::function<void(BatchConfig&, std::int64_t)>>> keys{
      {"global_size", [](BatchConfig& b, std::int64_t n) { b.global_size = b.micro_size = n; }},
      {"micro_size",
       [](BatchConfig& b, std::int64_t n) { b.global_size = Number{}, b.micro_size = n, b.accumulation = 1; }},
      {"accumulation", [](BatchConfig& b, std::int64_t n) { b.global_size = Number{}, b.accumulation = n; }},
      {"pool", [](BatchConfig& b, std::int64_t n) { b.pool = n; }},
      {"width_multiple", [](BatchConfig& b, std::int64_t n) { b.width_multiple = n; }},
      {"sequence_length",
       [](BatchConfig& b, std::int64_t n) { b.sequence_length = n, b.global_size = b.micro_size = n; }}};
  for (const auto& [key, set] : keys) {
    for (const std::int64_t number : {-1L, 0L, 1L, 1L << 16, 1L << 24, 1L << 31, 1L << 40, INT64_MAX}) {
      BatchConfig config = batch(4000, 1000);
      set(config, number);
      SCOPED_TRACE(fmt::format("{} {}", key, number));
      config::Problems problems;
      validate(config, problems);
      if (!problems.all().empty()) continue;
      try {
        Loader loader = shards_.loader(config);
        for (const Batch& micro_batch : loader.next().batches) EXPECT_LT(micro_batch.padded_tokens, 1 << 20);
      } catch (const Error& error) {
        EXPECT_TRUE(error.fault() == Fault::config || error.fault() == Fault::data) << error.what();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachTask,
                         testing::Values(std::tuple{spec::TokenLayout::marian, std::optional<bool>{}},
                                         std::tuple{spec::TokenLayout::llama, std::optional<bool>{}},
                                         std::tuple{spec::TokenLayout::llama, std::optional<bool>{false}}));

TEST(LoaderOfPairs, HandsOutTheSourceOfEachExample) {
  const Shards shards{spec::TokenLayout::marian, {100}};
  const Batch batch = shards.loader(sizes(1000, 1000)).next().batches.at(0);
  Example example;
  const std::vector<std::int32_t>& ids = example.source;
  for (std::size_t r = 0; r < batch.examples.size(); ++r) {
    shards.all().read(batch.examples[r], std::nullopt, example);
    ASSERT_EQ(batch.source_lengths[r], static_cast<std::int64_t>(ids.size()));
    EXPECT_TRUE(
        std::equal(ids.begin(), ids.end(), batch.source.begin() + static_cast<std::ptrdiff_t>(r) * batch.source_width));
  }
}

TEST(LoaderOfPairs, GivesTheFilesPagesBackAfterEachPoolAndWhenItReadsInAnotherFile) {
  const Shards shards{spec::TokenLayout::marian, {100, 50}};
  auto released_since = [&shards, before = 0]() mutable {
    return shards.released() - std::exchange(before, shards.released());
  };
  Example example;
  for (const std::uint64_t place : {0, 1, 99}) shards.all().read(place, std::nullopt, example);
  EXPECT_EQ(released_since(), 0);
  for (const std::uint64_t place : {100, 101, 3}) shards.all().read(place, std::nullopt, example);
  EXPECT_EQ(released_since(), 2) << "the first file, then the second";
  (void)shards.all().lengths(120);
  EXPECT_EQ(released_since(), 0);
  const Loader loader = shards.loader(sizes(200, 200));
  EXPECT_GE(released_since(), 2) << "both files";
}

TEST(LoaderOfPairs, CutsOrRefusesPairsThatExceedAMicroBatch) {
  const Shards shards{spec::TokenLayout::marian, {60}};
  BatchConfig batch = sizes(60, 60);
  const auto examples = [&] {
    Loader loader = shards.loader(batch);
    std::map<std::uint64_t, std::pair<std::int64_t, std::int64_t>> found;
    for (StepBatches step = loader.next(); step.at.pool.epoch == 0; step = loader.next()) {
      for (const Batch& made : step.batches) {
        EXPECT_LE(made.padded_tokens, 60);
        for (std::size_t r = 0; r < made.examples.size(); ++r) {
          found[made.examples[r]] = {made.source_lengths[r], made.target_lengths[r]};
          EXPECT_EQ(made.source[r * static_cast<std::size_t>(made.source_width) +
                                static_cast<std::size_t>(made.source_lengths[r]) - 1],
                    shards.vocabulary().eos);
        }
      }
    }
    return found;
  };
  const auto skipped = examples();
  EXPECT_LT(skipped.size(), 60U);
  batch.oversized = Oversized::truncate;
  const auto cut = examples();
  EXPECT_EQ(cut.size(), 60U);
  for (const auto& [example, lengths] : cut) {
    const Lengths whole = shards.all().lengths(example);
    if (skipped.contains(example))
      EXPECT_EQ(lengths, skipped.at(example));
    else
      EXPECT_EQ(lengths.first + lengths.second, 60) << whole.source << " " << whole.target;
  }
  batch.oversized = Oversized::error;
  EXPECT_THROW((void)examples(), Error);
}

TEST(LoaderOfPackedRows, FillsRowsAndKeepsDocumentsApart) {
  const Shards shards{spec::TokenLayout::llama, {200}};
  for (const DocumentCut cut : {DocumentCut::split, DocumentCut::whole}) {
    BatchConfig config = sizes(512, 128);  // two rows of 64 a micro-batch
    config.documents = cut;
    Loader loader = shards.loader(config);
    const double fill = loader.report().fill;
    if (cut == DocumentCut::split) {
      EXPECT_GT(fill, 0.99);
    } else {
      EXPECT_TRUE(fill > 0.5 && fill < 0.95) << fill;
    }
    const Batch batch = loader.next().batches.at(0);
    EXPECT_EQ(batch.rows, 2);
    EXPECT_LE(batch.target_width, 64);
    for (std::size_t i = 1; i < batch.segments.size(); ++i) {
      if (static_cast<std::int64_t>(i) % batch.target_width == 0) continue;
      if (batch.segments[i] == batch.segments[i - 1]) {
        EXPECT_TRUE(batch.segments[i] == -1 || batch.positions[i] == batch.positions[i - 1] + 1);
      } else {
        EXPECT_EQ(batch.positions[i], 0);
        EXPECT_EQ(batch.target_labels[i - 1], no_label);
      }
    }
  }
}

TEST(LoaderOfRows, DoesNotReadADocumentFromItsBeginningToItsEnd) {
  const Shards shards{spec::TokenLayout::llama, {300}};
  for (const bool packing : {true, false}) {
    BatchConfig config = sizes(256, 256);  // four rows of 64
    config.packing = packing;
    Loader loader = shards.loader(config);
    std::int64_t rows = 0, follow = 0;
    for (StepBatches step = loader.next(); step.at.pool.epoch == 0; step = loader.next()) {
      const Batch& batch = step.batches.at(0);
      for (std::int64_t row = 1; row < batch.rows; ++row, ++rows) {
        const auto begin = static_cast<std::size_t>(row * batch.target_width);
        if (batch.target_labels[begin - 1] == batch.target_input[begin]) ++follow;
      }
    }
    EXPECT_GT(rows, 100);
    EXPECT_LT(follow, rows / 4) << "rows that go on where the one before ends; packing " << packing;
  }
}

TEST(LoaderOfPairs, TakesPoolAndWidthsFromTheConfiguration) {
  const Shards shards{spec::TokenLayout::marian, {300}};
  BatchConfig config = sizes(400, 400);
  config.width_multiple = 8;
  const Batch batch = shards.loader(config).next().batches.at(0);
  EXPECT_EQ(batch.source_width % 8, 0);
  EXPECT_EQ(batch.target_width % 8, 0);
  config = sizes(200, 200);
  const auto examples = [&](std::int64_t pool) {
    config.pool = pool;
    return shards.loader(config).next().batches.at(0).examples;
  };
  EXPECT_NE(examples(1), examples(300));  // 64 steps hold less than half of the verses
  EXPECT_EQ(examples(300), examples(100000));
}

TEST(PoolMaker, MixesCorporaByTheTemperature) {
  for (const spec::TokenLayout shape : {spec::TokenLayout::marian, spec::TokenLayout::llama}) {
    const Shards shards{shape, {280, 70}};
    const auto share_of_small = [&](double temperature) {
      const BatchConfig batch = sizes(4000, 1000);
      const PoolMaker maker{shards.all(),
                            shards.vocabulary(),
                            {.sizes = resolve_sizes(batch, 1), .batch = batch, .temperature = temperature}};
      return maker.shares().at(1);
    };
    EXPECT_NEAR(share_of_small(1), 0.2, 1e-9);
    EXPECT_GT(share_of_small(1e9), 0.4);
  }
}

TEST(PoolMaker, DrawsFromEachCorpusByItsWeightFromItsStartToItsEnd) {
  const Shards shards{spec::TokenLayout::marian, {280, 70, 70}, {}, [](DataConfig& config) {
                        config.corpora[0].weight = 0.25;
                        config.corpora[1].start = {1, config::Period::Unit::epoch};
                        config.corpora[2].end = {1, config::Period::Unit::epoch};
                      }};
  const BatchConfig batch = sizes(4000, 1000);
  const PoolMaker maker{shards.all(), shards.vocabulary(), {.sizes = resolve_sizes(batch, 1), .batch = batch}};
  EXPECT_THAT(maker.shares(), testing::Each(testing::DoubleNear(1 / 3., 1e-9)));
  const auto drawn = [&](std::int64_t epoch) {
    const auto pool = maker.make({.epoch = epoch});
    std::vector<std::int64_t> counts = pool->next().drawn;
    for (std::size_t c = 0; c < counts.size(); ++c) counts[c] -= pool->begin().drawn[c];
    return counts;
  };
  EXPECT_THAT(drawn(0), testing::ElementsAre(testing::Gt(0), 0, testing::Gt(0)));
  EXPECT_THAT(drawn(1), testing::ElementsAre(testing::Gt(0), testing::Gt(0), 0));
}

TEST(PoolMaker, PlansFileAfterFileAndGivesTheirPagesBack) {
  for (const auto layout : {spec::TokenLayout::marian, spec::TokenLayout::llama}) {
    const Shards shards{layout, {100, 100, 100}};
    BatchConfig batch = sizes(4000, 1000);
    batch.pool = 200;
    const PoolMaker maker{shards.all(), shards.vocabulary(), {.sizes = resolve_sizes(batch, 1), .batch = batch}};
    const int before = shards.released();
    const auto pool = maker.make({});
    const std::vector<std::int64_t> drawn = pool->next().drawn;
    EXPECT_THAT(drawn, testing::Each(testing::Gt(10)));
    EXPECT_EQ(shards.released() - before, 2) << "the last of three files is still mapped";
  }
}

TEST(Loader, CountsPassesThroughEachCorpus) {
  const Shards shards{spec::TokenLayout::marian, {280, 70}};
  Loader loader = shards.loader(sizes(4000, 1000));
  EXPECT_NEAR(loader.shares().at(1), 0.2, 1e-9);
  const std::int64_t steps = loader.report().steps;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      const StepBatches made = loader.next();
      const double done = epoch + static_cast<double>(step) / static_cast<double>(steps);
      EXPECT_NEAR(made.passes.at(0), done, 0.01);
      EXPECT_NEAR(made.passes.at(1), done, 0.05);
    }
  }
}

TEST(Loader, CountsRowsUnderUnitExamples) {
  const Shards shards{spec::TokenLayout::llama, {200}};
  BatchConfig config = sizes(6, 3);
  config.unit = BatchUnit::examples;
  const StepBatches step = shards.loader(config).next();
  ASSERT_EQ(step.batches.size(), 2U);
  EXPECT_EQ(std::tuple(step.batches[0].rows, step.batches[0].target_width), std::tuple(3, 64));
}

TEST(Loader, RefusesPackedPairsAndRowsThatDoNotFit) {
  const Shards pairs{spec::TokenLayout::marian, {20}}, lines{spec::TokenLayout::llama, {20}};
  BatchConfig packed = sizes(1000, 1000);
  packed.packing = true;
  EXPECT_THROW((void)pairs.loader(packed), Error);
  EXPECT_THROW((void)lines.loader(sizes(63, 63)), Error);
}

TEST(Loader, RethrowsWhatTheThreadMet) {
  const Shards shards{spec::TokenLayout::marian, {50}};
  const spec::Vocabulary tiny =
      spec::vocabulary_of({spec::TokenLayout::marian}, 20);  // most ids of the shards are outside
  const BatchConfig batch = sizes(1000, 1000);
  Loader loader{shards.all(), tiny, {.pool = {.sizes = resolve_sizes(batch, 1), .batch = batch}}};
  EXPECT_THROW(for (int i = 0; i < 100; ++i)(void) loader.next(), Error);
}

}  // namespace
}  // namespace argosy::data
