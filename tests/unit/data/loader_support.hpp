#pragma once

#include <atomic>

#include "data/loader.hpp"
#include "data/pipeline.hpp"
#include "data/shard_writer.hpp"
#include "support/small_text.hpp"
#include "support/token_shards.hpp"

/// Token shards of verses, and loaders of them.
namespace argosy::data {

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
                                  .deal = {.world = world},
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

inline BatchConfig sizes(std::int64_t global_size, std::int64_t micro_size) {
  BatchConfig batch;
  batch.global_size = global_size;
  batch.micro_size = micro_size;
  batch.pool = 100;
  batch.sequence_length = 64;
  return batch;
}

}  // namespace argosy::data
