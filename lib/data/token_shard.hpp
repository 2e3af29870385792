#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/transforms/transform.hpp"

/// One file of preprocessed text, memory-mapped (FORMAT.md). The header and every size are checked first, and each
/// block of 64 KiB against its digest when it is first touched. Immutable; any number of threads may read.
namespace argosy::data {

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
  [[nodiscard]] bool has_loss() const noexcept { return (flags_ & 1U) != 0; }
  /// Whether a text is the places of records in the corpus: one of each side, after those of the lines before it.
  [[nodiscard]] bool has_places() const noexcept { return (flags_ & 2U) != 0; }
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
  /// See Mapping.
  void release_pages() const { mapping_.release_pages(); }
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
  [[nodiscard]] bool marks_document(std::uint64_t example) const;
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
  std::uint32_t sides_ = 0, value_width_ = 0, flags_ = 0;
  const std::byte *documents_ = nullptr, *loss_ = nullptr;
  Side source_, target_;
  std::string_view note_;
  Digest tokenizer_digest_, recipe_digest_, body_digest_;
};

}  // namespace argosy::data
