#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/data_config.hpp"
#include "data/pipeline.hpp"
#include "data/tokenizer.hpp"

/// Preprocessed text as memory-mapped token shards (FORMAT.md). Readers check the header and every size first, and each
/// block of 64 KiB against its digest when they first touch it. Immutable once committed; any number of threads may
/// read.
namespace argosy::data {

/// One mapped shard file.
class TokenShard {
 public:
  /// Throws Error{corrupt} naming the file and what does not fit, Error{data} for a shard of version 1.
  static TokenShard open(const Files& files, const Path& path);
  /// The same over the bytes of a file, which must outlive the shard; `name` stands in messages.
  static TokenShard of_bytes(Bytes bytes, const Path& name);

  [[nodiscard]] std::uint64_t size() const noexcept { return examples_; }
  [[nodiscard]] bool has_source() const noexcept { return sides_ == 2; }
  /// Whether examples are stored as text. Else they are ids.
  [[nodiscard]] bool is_text() const noexcept { return value_width_ == 1; }
  /// Whether an example may have ids that bear no loss.
  [[nodiscard]] bool has_loss() const noexcept { return loss_ != nullptr; }
  /// The longest lengths of all examples, their sums, and how many documents begin: as the header says.
  [[nodiscard]] Lengths longest() const noexcept { return {source_.longest, target_.longest}; }
  struct Totals {
    std::uint64_t source = 0, target = 0, documents = 0;
    bool operator==(const Totals&) const = default;
  };
  [[nodiscard]] Totals totals() const noexcept { return {source_.ids, target_.ids, documents_begun_}; }

  // What follows reads the body and throws Error{corrupt} where a block differs from its digest.
  /// The example in its stored form, into `out` (replaced). Throws Error{corrupt} when it leaves its side's values.
  void read(std::uint64_t example, Example& out) const;
  /// Ids with EOS of a shard that stores ids, into `out` (replaced). Throws as read().
  void source(std::uint64_t example, std::vector<std::int32_t>& out) const;
  void target(std::uint64_t example, std::vector<std::int32_t>& out) const;
  /// The most ids that training makes of it, EOS included. Throws Error{corrupt} for a length of zero.
  [[nodiscard]] Lengths lengths(std::uint64_t example) const;
  [[nodiscard]] bool starts_document(std::uint64_t example) const;
  /// The n-th example from `from` on (from 0) that begins a document; size() when there are fewer.
  [[nodiscard]] std::uint64_t document_begin(std::uint64_t from, std::uint64_t n) const;
  /// Reads all lengths, offsets and documents, and throws Error{corrupt} unless they fit each other and the header.
  void check() const;
  /// Compares every block with its digest.
  void verify() const;
  /// JSON written with the shard: `dropped` lines by reason, `unknown`, `src_tokens` and `tgt_tokens`.
  [[nodiscard]] std::string_view note() const;
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return bytes_.size(); }
  [[nodiscard]] const Digest& tokenizer_digest() const noexcept { return tokenizer_digest_; }
  [[nodiscard]] const Digest& recipe_digest() const noexcept { return recipe_digest_; }
  [[nodiscard]] const Digest& body_digest() const noexcept { return body_digest_; }

 private:
  struct Side {
    std::uint64_t values = 0, ids = 0;  // counts
    std::uint32_t longest = 0;
    const std::byte *offsets = nullptr, *lengths = nullptr, *at = nullptr;
  };
  struct Range {
    std::uint64_t begin = 0, size = 0;
  };
  [[nodiscard]] Range range_of(const Side& side, std::uint64_t example) const;
  void read_ids(const Side& side, std::uint64_t example, std::vector<std::int32_t>& out) const;
  void read_text(const Side& side, std::uint64_t example, std::string& out) const;
  [[nodiscard]] std::uint32_t length(const Side& side, std::uint64_t example) const;
  void check(const Side& side) const;
  void touch(const std::byte* at, std::uint64_t size_bytes) const;
  void check_block(std::uint64_t block) const;
  Path path_;
  Mapping mapping_;
  Bytes bytes_;  // the mapping's, or borrowed
  std::uint64_t body_end_ = 0;
  const std::byte* block_digests_ = nullptr;
  std::unique_ptr<std::atomic<std::uint64_t>[]> intact_;  // a bit for each block that has been compared
  std::uint64_t examples_ = 0;
  std::uint64_t documents_begun_ = 0;
  std::uint32_t sides_ = 0, value_width_ = 0;
  const std::byte *documents_ = nullptr, *loss_ = nullptr;
  Side source_, target_;
  std::string_view note_;
  Digest tokenizer_digest_, recipe_digest_, body_digest_;
};

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
  /// Consecutive examples.
  struct Document {
    std::uint64_t first = 0, examples = 0;
  };

  /// Opens `data.shards` and picks the examples of a part. Borrows the tokenizer. Throws Error{data} when preprocess
  /// has not run, when the shards were made with another tokenizer, other corpora or other transforms; Error{corrupt}
  /// when a file does not fit its index.
  static TokenShards open(const Files& files, const DataConfig& config, const Tokenizer& tokenizer,
                          Part part = Part::train);

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
  void require_at_most(std::int64_t positions, const Tokenizer& tokenizer) const;
  [[nodiscard]] bool starts_document(std::uint64_t example) const;
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
  };
  [[nodiscard]] Place place_of(std::uint64_t example) const;
  void add_corpus(const CorpusConfig& config, const std::optional<SplitConfig>& split, Part part,
                  std::span<const TokenShard> shards);

  std::vector<TokenShard> shards_;
  std::vector<Run> runs_;
  std::vector<Corpus> corpora_;
  std::vector<Pipeline> pipelines_;  // of the corpora
  std::int32_t eos_ = 0;
  bool has_source_ = true, is_exact_ = true;
  Digest fingerprint_;
};

}  // namespace argosy::data
