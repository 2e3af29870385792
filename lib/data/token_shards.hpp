#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/data_config.hpp"
#include "data/pipeline.hpp"
#include "data/placed_texts.hpp"
#include "data/token_shard.hpp"
#include "data/tokenizer.hpp"

/// The token shards of a folder as examples to train on. Any number of threads may read.
namespace argosy::data {

/// A part of the corpora named by `data.split`.
enum class Part { train, validation, all };

/// All shards of a folder, as one numbered sequence of examples: corpus after corpus, line after line. What it holds in
/// memory grows with the number of shards alone: lengths stay in the mapped files, which the ranks of a node share.
class TokenShards {
 public:
  struct Corpus {
    std::string name;
    double weight = 1.0;
    config::Period start{};
    std::optional<config::Period> end{};
    std::uint64_t first = 0, size = 0;  // examples of the part, numbered through all corpora
    std::uint64_t first_document = 0, documents = 0;
    double src_tokens = 0, tgt_tokens = 0;  // sums of the lengths
  };
  /// Consecutive examples, and the sum of their lengths.
  struct Document {
    std::uint64_t first = 0, examples = 0;
    std::int64_t ids = 0;
  };

  /// Opens `data.shards` and picks the examples of a part. Throws Error{data} when preprocess
  /// has not run, when the shards were made with another tokenizer, other corpora or other transforms; Error{corrupt}
  /// when a file does not fit its index. texts: of all corpora, under data.mode online, to read examples. only: the
  /// number of the corpus to open alone.
  static TokenShards open(const Files& files, const DataConfig& config, const Tokenizer& tokenizer,
                          Part part = Part::train, std::span<const CountedCorpus> texts = {},
                          std::optional<std::size_t> only = std::nullopt);

  [[nodiscard]] const std::vector<Corpus>& corpora() const noexcept { return corpora_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return corpora_.back().first + corpora_.back().size; }
  [[nodiscard]] bool has_source() const noexcept { return has_source_; }
  /// Whether every example has exactly the ids that lengths() says, and all of them bear loss.
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }
  /// The most ids that training makes of it, EOS included.
  [[nodiscard]] Lengths lengths(std::uint64_t example) const;
  /// The ids that a model trains on, EOS included, into `out` (replaced): by the draw, or without chance. True: chance
  /// made more ids than planned, and the example was made without it.
  bool read(std::uint64_t example, const std::optional<Draw>& draw, Example& out) const;
  /// Throws Error{data} naming the first example with a side of more than `positions`, EOS included: corpus, number,
  /// first words.
  void require_at_most(std::int64_t positions) const;
  [[nodiscard]] bool starts_document(std::uint64_t example) const;
  /// Gives the pages of all files back (Mapping).
  void release_pages() const;
  /// Gives back the pages of the file of the example that was named before, if this one is in another. read() and
  /// document() do so themselves; lengths() does not.
  void go_to(std::uint64_t example) const;
  /// A document by its number through all corpora.
  [[nodiscard]] Document document(std::uint64_t number) const;
  /// Digest of tokenizer, texts and transforms: what a checkpoint compares on resume.
  [[nodiscard]] const Digest& fingerprint() const noexcept { return fingerprint_; }

 private:
  struct Run {                         // consecutive examples of one shard
    std::uint64_t first = 0, end = 0;  // in the part
    std::uint64_t first_document = 0;  // of those that begin in it
    std::uint64_t in_shard = 0;        // of the shard
    std::size_t shard = 0, corpus = 0;
  };
  struct Place {
    const Run& run;
    const TokenShard& shard;
    std::uint64_t in_shard;
    [[nodiscard]] Lengths lengths() const { return shard.lengths(in_shard); }
    [[nodiscard]] bool starts_document() const { return shard.starts_document(in_shard); }
  };
  [[nodiscard]] Place place_of(std::uint64_t example) const;
  [[nodiscard]] Place in_run(const Run& run, std::uint64_t example) const;
  /// Gives back the pages of the shard that was used before, if it is another one.
  void use(std::size_t shard) const;
  void add_corpus(const CorpusConfig& config, const std::optional<SplitConfig>& split, Part part,
                  std::span<const TokenShard> shards);

  std::vector<TokenShard> shards_;
  std::vector<Run> runs_;
  std::vector<Corpus> corpora_;
  std::vector<Pipeline> pipelines_;  // of the corpora
  std::vector<PlacedTexts> texts_;   // of the corpora, under data.mode online
  std::int32_t eos_ = 0;
  bool has_source_ = true, is_exact_ = true;
  Digest fingerprint_;
  std::unique_ptr<std::atomic<std::size_t>> last_used_ = std::make_unique<std::atomic<std::size_t>>(0);  // shard
};

}  // namespace argosy::data
