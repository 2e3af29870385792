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
#include "data/sampler.hpp"
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
  // What follows reads the body and throws Error{corrupt} where a block differs from its digest.
  /// Ids with EOS, into `out` (replaced). Throws Error{corrupt} when offsets leave the side's ids.
  void source(std::uint64_t example, std::vector<std::int32_t>& out) const;
  void target(std::uint64_t example, std::vector<std::int32_t>& out) const;
  [[nodiscard]] Lengths lengths(std::uint64_t example) const;
  [[nodiscard]] bool starts_document(std::uint64_t example) const;
  /// Ids of each side. Reads every length; throws Error{corrupt} unless each is at least 1 and together they are all
  /// ids.
  struct Totals {
    std::int64_t source = 0, target = 0;
  };
  [[nodiscard]] Totals check_lengths() const;
  /// Compares every block with its digest.
  void verify() const;
  /// JSON written with the shard: `dropped` lines by reason, `unknown` ids.
  [[nodiscard]] std::string_view note() const;
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return bytes_.size(); }
  [[nodiscard]] const Digest& tokenizer_digest() const noexcept { return tokenizer_digest_; }
  [[nodiscard]] const Digest& recipe_digest() const noexcept { return recipe_digest_; }
  [[nodiscard]] const Digest& body_digest() const noexcept { return body_digest_; }

 private:
  struct Side {
    std::uint64_t ids = 0;  // count
    const std::byte *offsets = nullptr, *lengths = nullptr, *at = nullptr;
  };
  void read(const Side& side, std::uint64_t example, std::vector<std::int32_t>& out) const;
  std::int64_t check_lengths(const Side& side) const;
  void touch(const std::byte* at, std::uint64_t size_bytes) const;
  void check_block(std::uint64_t block) const;
  Path path_;
  Mapping mapping_;
  Bytes bytes_;  // the mapping's, or borrowed
  std::uint64_t body_end_ = 0;
  const std::byte* block_digests_ = nullptr;
  std::unique_ptr<std::atomic<std::uint64_t>[]> intact_;  // a bit for each block that has been compared
  std::uint64_t examples_ = 0;
  std::uint32_t sides_ = 0, id_width_ = 0;
  const std::byte* documents_ = nullptr;
  Side source_, target_;
  std::string_view note_;
  Digest tokenizer_digest_, recipe_digest_, body_digest_;
};

/// A part of the corpora named by `data.split`.
enum class Part { train, validation, all };

/// All shards of a folder, as one numbered sequence of examples: corpus after corpus, line after line.
class TokenShards {
 public:
  struct Corpus {
    std::string name;
    double weight = 1.0;
    std::uint64_t first = 0, size = 0;  // examples of the part, numbered through all corpora
  };

  /// Opens `data.shards` and picks the examples of a part. Throws Error{data} when preprocess has not run, when the
  /// shards were made with another tokenizer or other corpora; Error{corrupt} when a file does not fit its index.
  static TokenShards open(const Files& files, const DataConfig& config, const Tokenizer& tokenizer,
                          Part part = Part::train);

  [[nodiscard]] const std::vector<Corpus>& corpora() const noexcept { return corpora_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return lengths_.size(); }
  [[nodiscard]] bool has_source() const noexcept { return has_source_; }
  [[nodiscard]] std::span<const Lengths> lengths() const noexcept { return lengths_; }
  void source(std::uint64_t example, std::vector<std::int32_t>& out) const;
  void target(std::uint64_t example, std::vector<std::int32_t>& out) const;
  /// Throws Error{data} naming the first example with a side of more than `positions`, EOS included: corpus, number,
  /// first words.
  void require_at_most(std::int64_t positions, const Tokenizer& tokenizer) const;
  [[nodiscard]] bool starts_document(std::uint64_t example) const;
  /// Digest of tokenizer, texts and transforms: what a checkpoint compares on resume.
  [[nodiscard]] const Digest& fingerprint() const noexcept { return fingerprint_; }

 private:
  struct Run {                   // consecutive examples of one shard
    std::uint64_t first = 0;     // in the part
    std::uint64_t in_shard = 0;  // of the shard
    std::size_t shard = 0;
  };
  /// Its shard, and its number there.
  [[nodiscard]] std::pair<const TokenShard&, std::uint64_t> place_of(std::uint64_t example) const;
  std::vector<TokenShard> shards_;
  std::vector<Run> runs_;
  std::vector<Corpus> corpora_;
  std::vector<Lengths> lengths_;
  bool has_source_ = true;
  Digest fingerprint_;
};

}  // namespace argosy::data
