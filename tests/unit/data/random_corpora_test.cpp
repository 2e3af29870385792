#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/random.hpp"
#include "data/loader.hpp"
#include "data/pipeline.hpp"
#include "data/shard_writer.hpp"
#include "support/small_text.hpp"
#include "support/token_shards.hpp"

/// What holds of batches whatever the corpora: corpora, lengths and settings are drawn.
namespace argosy::data {
namespace {

/// One of the values.
template <class T>
T one_of(RandomStream& random, std::initializer_list<T> values) {
  return *(values.begin() + random.below(values.size()));
}
std::int64_t between(RandomStream& random, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

/// Each corpus has 70 ids of its own.
std::int64_t first_id(std::size_t corpus) { return 10 + 70 * static_cast<std::int64_t>(corpus); }

/// Token shards of drawn corpora, in one or two files each, and drawn settings that fit them.
class DrawnCase {
 public:
  explicit DrawnCase(std::uint64_t seed) : random_(seed, 77) {
    pairs_ = random_.below(2) == 0;
    ShardIndex index;
    index.tokenizer = tokenizer().digest();
    config_.shards = folder_.path();
    config_.temperature = one_of(random_, {1.0, 1.0, 2.0, 1e9});
    const std::int64_t corpora = between(random_, 1, 4);
    for (std::int64_t c = 0; c < corpora; ++c) add_corpus(index);
    Files::system().write_atomically(shard_index_path(folder_.path()), text_of(index));
    shards_ = TokenShards::open(Files::system(), config_, tokenizer());
    draw_batch();
    RandomStream routes(seed, 78);
    for (std::int64_t c = 0; c < corpora && pairs_; ++c)
      routes_.push_back(static_cast<std::uint32_t>(between(routes, 0, 3)));
  }

  [[nodiscard]] Loader loader(int rank, int world, int workers, const Cursor& from = {}) const {
    return Loader{shards_,
                  tokenizer().vocabulary(),
                  {.pool = {.seed = 5,
                            .sizes = resolve_sizes(batch_, world),
                            .batch = batch_,
                            .temperature = config_.temperature,
                            .routes = routes_},
                   .canonical_rank = rank,
                   .deal = {.world = world},
                   .workers = workers},
                  from};
  }
  [[nodiscard]] const BatchConfig& batch() const { return batch_; }
  [[nodiscard]] bool pairs() const { return pairs_; }
  [[nodiscard]] std::size_t corpora() const { return config_.corpora.size(); }
  [[nodiscard]] const std::vector<std::uint32_t>& routes() const { return routes_; }
  [[nodiscard]] const TokenShards& shards() const { return shards_; }
  [[nodiscard]] std::int64_t longest() const { return longest_; }

 private:
  [[nodiscard]] const Tokenizer& tokenizer() const {
    return test::small_tokenizer(pairs_ ? spec::TokenLayout::marian : spec::TokenLayout::llama);
  }

  /// Lengths with a long tail, as text has them; a single id now and then.
  std::vector<std::int32_t> draw_ids(std::size_t corpus) {
    const double drawn = random_.below(20) == 0 ? 0 : std::exp(1.8 + 0.8 * random_.normal());
    const auto length = static_cast<std::size_t>(std::clamp(drawn, 0.0, 90.0));
    std::vector<std::int32_t> ids;
    ids.reserve(length + 1);
    for (std::size_t i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(between(random_, 0, 69) + first_id(corpus)));
    ids.push_back(static_cast<std::int32_t>(tokenizer().vocabulary().eos));
    longest_ = std::max(longest_, std::ssize(ids));
    return ids;
  }

  void add_corpus(ShardIndex& index) {
    const std::string name = "c" + std::to_string(config_.corpora.size());
    CorpusConfig& config = config_.corpora.emplace_back(CorpusConfig{.name = name, .source = "a"});
    if (pairs_) config.target = "b";
    config.weight = one_of(random_, {1.0, 1.0, 0.3, 4.0});
    ShardIndex::Corpus& corpus = index.corpora.emplace_back();
    corpus.name = name;
    corpus.texts.resize(pairs_ ? 2 : 1);
    corpus.transforms = Pipeline{config, tokenizer()}.recipe();
    const std::int64_t files = between(random_, 1, 2);
    for (std::int64_t file = 0; file < files; ++file) {
      ShardWriter writer{2, pairs_ ? 2U : 1U};
      const std::int64_t examples = between(random_, 1, 300);
      for (std::int64_t i = 0; i < examples; ++i) {
        const std::size_t own = index.corpora.size() - 1;
        const auto source = pairs_ ? draw_ids(own) : std::vector<std::int32_t>{}, target = draw_ids(own);
        corpus.src_tokens += std::ssize(source);
        corpus.tgt_tokens += std::ssize(target);
        writer.add(source, target, i == 0 || random_.below(3) > 0);
      }
      corpus.shards.push_back(test::write_token_shard(folder_, fmt::format("{}-{}.tokens", name, file),
                                                      writer.bytes(tokenizer().digest(), {})));
    }
  }

  void draw_batch() {
    batch_.unit = one_of(random_, {BatchUnit::padded_tokens, BatchUnit::examples});
    const bool by_rows = batch_.unit == BatchUnit::examples;
    batch_.sequence_length = between(random_, 8, 100);
    batch_.micro_size = by_rows ? between(random_, 1, 12) : between(random_, 101, 600);
    batch_.global_size = *batch_.micro_size * between(random_, 1, 7);
    batch_.pool = between(random_, 1, 900);
    batch_.oversized = one_of(random_, {Oversized::skip, Oversized::truncate});
    batch_.documents = one_of(random_, {DocumentCut::split, DocumentCut::whole});
    if (random_.below(3) == 0) batch_.width_multiple = between(random_, 2, 9);
    if (!pairs_) batch_.packing = random_.below(3) > 0;
  }

  RandomStream random_;
  bool pairs_ = true;
  std::int64_t longest_ = 0;
  test::TempFolder folder_;
  DataConfig config_;
  BatchConfig batch_;
  std::vector<std::uint32_t> routes_;  // by corpus
  TokenShards shards_;
};

constexpr int steps_looked_at = 9;

using MicroBatch = std::tuple<std::uint32_t, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                              std::vector<std::int64_t>, std::vector<std::int64_t>>;
MicroBatch content_of(const Batch& batch) {
  return {batch.route, batch.rows, batch.source, batch.target_input, batch.target_labels, batch.positions};
}

struct StepOfAllRanks {
  std::multiset<MicroBatch> micro_batches;
  std::multiset<int> routes;  // of all its micro-batches, as each rank is told
  bool operator==(const StepOfAllRanks&) const = default;
};

/// The first steps, over all ranks.
std::vector<StepOfAllRanks> steps_of(const DrawnCase& drawn, int world, int workers) {
  std::vector<StepOfAllRanks> steps(steps_looked_at);
  for (int rank = 0; rank < world; ++rank) {
    Loader loader = drawn.loader(rank, world, workers);
    for (StepOfAllRanks& step : steps) {
      const StepBatches made = loader.next();
      for (const Batch& batch : made.batches)
        if (!batch.empty()) step.micro_batches.insert(content_of(batch));
      const std::multiset<int> routes(made.routes.begin(), made.routes.end());
      EXPECT_TRUE(rank == 0 || routes == step.routes);
      step.routes = routes;
    }
  }
  return steps;
}

class RandomCorpora : public testing::TestWithParam<int> {
 protected:
  const DrawnCase drawn_{static_cast<std::uint64_t>(GetParam())};
};

TEST_P(RandomCorpora, GiveTheSameStepsOnAnyNumberOfRanksAndWorkers) {
  const auto alone = steps_of(drawn_, 1, 1);
  for (const auto& [world, workers] : {std::pair{1, 3}, {2, 1}, {3, 2}, {4, 4}})
    EXPECT_TRUE(steps_of(drawn_, world, workers) == alone) << world << " ranks, " << workers << " workers";
}

TEST_P(RandomCorpora, FillMicroBatchesUpToTheBudgetAndCountThem) {
  Loader loader = drawn_.loader(0, 1, 1);
  const BatchConfig& config = drawn_.batch();
  for (int s = 0; s < steps_looked_at; ++s) {
    const StepBatches step = loader.next();
    PoolSource::Totals sums;
    for (const Batch& batch : step.batches) {
      sums.src_tokens += batch.src_tokens;
      sums.tgt_tokens += batch.tgt_tokens;
      sums.padded_tokens += batch.padded_tokens;
      const bool by_rows = config.unit == BatchUnit::examples;
      EXPECT_LE(by_rows ? batch.rows : batch.padded_tokens, *config.micro_size);
      // A whole row of a language model is as wide as it is.
      const std::int64_t multiple = config.width_multiple.value_or(1);
      const bool is_whole = !drawn_.pairs() && batch.target_width == config.sequence_length;
      EXPECT_EQ(batch.source_width % multiple + (is_whole ? 0 : batch.target_width % multiple), 0);
      if (!drawn_.pairs()) {
        EXPECT_LT(batch.target_width, config.sequence_length + multiple);
      }
      const auto labels = std::ranges::count_if(batch.target_labels, [](std::int64_t id) { return id != no_label; });
      EXPECT_EQ(labels, batch.tgt_tokens);
    }
    EXPECT_EQ(std::tuple(step.totals.src_tokens, step.totals.tgt_tokens, step.totals.padded_tokens),
              std::tuple(sums.src_tokens, sums.tgt_tokens, sums.padded_tokens));
    EXPECT_GT(sums.tgt_tokens, 0);
  }
}

TEST_P(RandomCorpora, GoOnFromAnyStep) {
  Loader through = drawn_.loader(0, 1, 2);
  std::vector<StepBatches> steps;
  for (int s = 0; s < 3 * steps_looked_at; ++s) steps.push_back(through.next());
  for (std::size_t s = 1; s < steps.size(); s += 4) {
    const StepBatches step = drawn_.loader(0, 1, 1, steps[s - 1].next).next();
    EXPECT_EQ(step.at, steps[s].at);
    EXPECT_EQ(step.next, steps[s].next);
    EXPECT_EQ(step.routes, steps[s].routes);
    ASSERT_EQ(step.batches.size(), steps[s].batches.size());
    for (std::size_t b = 0; b < step.batches.size(); ++b)
      EXPECT_TRUE(content_of(step.batches[b]) == content_of(steps[s].batches[b]));
  }
}

TEST_P(RandomCorpora, HaveMicroBatchesOfOneRoute) {
  if (!drawn_.pairs()) return;
  Loader loader = drawn_.loader(0, 1, 1);
  const std::vector<TokenShards::Corpus>& corpora = drawn_.shards().corpora();
  for (int s = 0; s < steps_looked_at; ++s) {
    const StepBatches step = loader.next();
    for (std::size_t j = 0; j < step.batches.size(); ++j) {
      const Batch& batch = step.batches[j];
      EXPECT_EQ(step.routes.at(j), batch.empty() ? -1 : static_cast<int>(batch.route));
      for (const std::uint64_t example : batch.examples)
        for (std::size_t c = 0; c < corpora.size(); ++c)
          if (example >= corpora[c].first && example < corpora[c].first + corpora[c].size) {
            EXPECT_EQ(batch.route, drawn_.routes()[c]);
          }
    }
  }
}

TEST_P(RandomCorpora, SayOfWhichCorpusEachPositionIs) {
  Loader loader = drawn_.loader(0, 1, 1);
  const std::size_t several = drawn_.corpora() > 1 ? drawn_.corpora() : 0;
  std::set<std::int64_t> seen;
  for (int s = 0; s < steps_looked_at; ++s) {
    const StepBatches step = loader.next();
    EXPECT_EQ(step.passes.size(), drawn_.corpora());
    for (const Batch& batch : step.batches) {
      ASSERT_EQ(batch.corpora.size(), several > 0 ? batch.target_labels.size() : 0);
      for (std::size_t i = 0; i < batch.corpora.size(); ++i) {
        const std::int64_t id = batch.target_labels[i], own = first_id(static_cast<std::size_t>(batch.corpora[i]));
        if (id < first_id(0)) continue;  // the end, or none
        EXPECT_TRUE(id >= own && id < own + 70) << id << " of corpus " << batch.corpora[i];
        seen.insert(batch.corpora[i]);
      }
    }
  }
  EXPECT_EQ(seen.empty(), several == 0);
}

/// Pairs have numbers, so that each can be found again.
TEST_P(RandomCorpora, ReadEachPairOfACorpusOnceBeforeAnyAgain) {
  if (!drawn_.pairs()) return;
  Loader loader = drawn_.loader(0, 1, 1);
  const std::vector<TokenShards::Corpus>& corpora = drawn_.shards().corpora();
  const bool leaves_out = drawn_.batch().unit == BatchUnit::padded_tokens &&
                          drawn_.batch().oversized == Oversized::skip && loader.report().oversized > 0;
  std::vector<std::map<std::uint64_t, int>> seen(corpora.size());
  StepBatches step;
  do {
    step = loader.next();
    for (const Batch& batch : step.batches)
      for (const std::uint64_t example : batch.examples)
        for (std::size_t c = 0; c < corpora.size(); ++c)
          if (example >= corpora[c].first && example < corpora[c].first + corpora[c].size) ++seen[c][example];
  } while (step.next.step > 0 || step.next.pool.epoch < 2);  // to the end of the second epoch
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    const double passes = step.passes.at(c);
    for (const auto& [example, times] : seen[c]) {
      EXPECT_LE(times, std::ceil(passes - 1e-9)) << "corpus " << c;
      EXPECT_GE(times, leaves_out ? 1 : std::floor(passes + 1e-9)) << "corpus " << c;
    }
    if (passes >= 1 && !leaves_out) {
      EXPECT_EQ(seen[c].size(), corpora[c].size);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drawn, RandomCorpora, testing::Range(0, 40));

}  // namespace
}  // namespace argosy::data
