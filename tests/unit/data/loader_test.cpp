#include "data/loader.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "data/pipeline.hpp"
#include "data/shard_writer.hpp"
#include "support/small_text.hpp"
#include "support/token_shards.hpp"

namespace argosy::data {
namespace {

class ReleaseCounter : public Os {
 public:
  std::atomic<int> released = 0;
  int release_pages(void* at, std::size_t size_bytes) override {
    ++released;
    return Os::release_pages(at, size_bytes);
  }
};

/// A folder of shards with corpora of verses, each of the first `counts[c]` ones.
class Shards {
 public:
  Shards(spec::TokenLayout shape, const std::vector<std::size_t>& counts,
         const std::vector<TransformConfig>& transforms = {}, const std::function<void(DataConfig&)>& change = {})
      : tokenizer_(test::small_tokenizer(shape)), pairs_(shape == spec::TokenLayout::marian) {
    ShardIndex index;
    index.tokenizer = tokenizer_.digest();
    DataConfig config;
    config.shards = folder_.path();
    for (const std::size_t count : counts) {
      const std::string name = "verses" + std::to_string(index.corpora.size());
      index.corpora.push_back(make_corpus(name, count));
      CorpusConfig& corpus = config.corpora.emplace_back(CorpusConfig{.name = name, .source = "en"});
      if (pairs_) corpus.target = "es";
      corpus.transforms = transforms;
      index.corpora.back().transforms = Pipeline{corpus, tokenizer_}.recipe();
    }
    Files::system().write_atomically(shard_index_path(folder_.path()), text_of(index));
    if (change) change(config);
    shards_ = TokenShards::open(Files{os_}, config, tokenizer_);
  }
  [[nodiscard]] Loader loader(const BatchConfig& batch, int rank = 0, int world = 1, Cursor from = {},
                              int workers = 1) const {
    const LoaderSettings settings{.pool = {.seed = 5,
                                           .sizes = resolve_sizes(batch, world),
                                           .batch = batch,
                                           .position_shift_max = position_shift_max},
                                  .canonical_rank = rank,
                                  .world = world,
                                  .workers = workers};
    return Loader{shards_, tokenizer_.vocabulary(), settings, from};
  }
  std::int64_t position_shift_max = 0;
  [[nodiscard]] const TokenShards& all() const { return shards_; }
  [[nodiscard]] int released() const { return os_.released; }
  [[nodiscard]] const spec::Vocabulary& vocabulary() const { return tokenizer_.vocabulary(); }

 private:
  ShardIndex::Corpus make_corpus(const std::string& name, std::size_t count) {
    const test::Verses text = test::verses(count);
    const auto eos = static_cast<std::int32_t>(tokenizer_.vocabulary().eos);
    ShardWriter writer{2, pairs_ ? 2U : 1U};
    ShardIndex::Corpus corpus;
    corpus.name = name;
    corpus.texts.resize(pairs_ ? 2 : 1);
    for (std::size_t i = 0; i < text.english.size(); ++i) {
      std::vector<std::int32_t> source = tokenizer_.encode(text.english[i]),
                                target = tokenizer_.encode(text.spanish[i]);
      source.push_back(eos);
      target.push_back(eos);
      if (pairs_) corpus.src_tokens += static_cast<std::int64_t>(source.size());
      corpus.tgt_tokens += static_cast<std::int64_t>(target.size());
      writer.add(source, target, i % 7 == 0);
    }
    corpus.shards.push_back(test::write_token_shard(folder_, name + ".tokens", writer.bytes(tokenizer_.digest(), {})));
    return corpus;
  }

  const Tokenizer& tokenizer_;
  bool pairs_;
  test::TempFolder folder_;
  ReleaseCounter os_;
  TokenShards shards_;
};

BatchConfig sizes(std::int64_t global_size, std::int64_t micro_size) {
  BatchConfig batch;
  batch.global_size = global_size;
  batch.micro_size = micro_size;
  batch.pool = 100;
  batch.sequence_length = 64;
  return batch;
}

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

TEST(LoaderOfPairs, GivesTheFilesPagesBackEvery64Steps) {
  const Shards shards{spec::TokenLayout::marian, {100}};
  Loader loader = shards.loader(sizes(200, 200));
  for (int step = 0; step < 200; ++step) (void)loader.next();
  EXPECT_GE(shards.released(), 3) << "a file each time";
  EXPECT_LE(shards.released(), 5);
}

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
