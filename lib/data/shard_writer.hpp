#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/hash.hpp"
#include "data/transforms/transform.hpp"

/// The layout of a token shard (FORMAT.md), and what builds one in memory.
namespace argosy::data {

/// The first 256 bytes as they stand in the file. A value is an id, or a byte of text where value_width is 1.
struct ShardHeader {
  static constexpr std::array<char, 8> own_magic{'A', 'R', 'G', 'T', 'O', 'K', 'E', 'N'};
  static constexpr std::uint32_t own_version = 4;
  static constexpr std::uint32_t has_loss = 1, has_places = 2;  // flags

  std::array<char, 8> magic = own_magic;
  std::uint32_t version = own_version, value_width = 0, sides = 0, note_bytes = 0;
  std::uint64_t examples = 0, source_values = 0, target_values = 0;
  std::array<std::uint8_t, 16> tokenizer{}, recipe{}, body{};
  std::uint64_t documents = 0, source_ids = 0, target_ids = 0;
  std::uint32_t longest_source = 0, longest_target = 0, flags = 0;
  std::array<std::uint8_t, 108> reserved{};
  std::array<std::uint8_t, 16> header{};
};
static_assert(sizeof(ShardHeader) == 256);

/// Bytes of the header that its own digest covers.
inline constexpr std::size_t digested_header_bytes = 240;

/// Block b is the file's bytes [b, b + 1) · 64 KiB, without the header and up to the end of the body: small enough that
/// a first touch costs little, aligned with pages.
inline constexpr std::uint64_t shard_block_bytes = 64U << 10U;

[[nodiscard]] constexpr std::uint64_t padded_to_8(std::uint64_t size_bytes) { return (size_bytes + 7) / 8 * 8; }

/// Blocks of a file whose body ends at `body_end` (never within the header).
[[nodiscard]] constexpr std::uint64_t shard_blocks(std::uint64_t body_end) {
  return (body_end + shard_block_bytes - 1) / shard_block_bytes;
}

/// Builds the bytes of one shard. One thread.
class ShardWriter {
 public:
  /// value_width: 1 for text, 2 or 4 bytes an id; sides: 2 for pairs, 1 for a language model.
  /// places: texts are places of records, as RecordPlace; width 1.
  ShardWriter(std::uint32_t value_width, std::uint32_t sides, bool places = false);

  /// Adds an example in its stored form: its texts where value_width is 1, else its ids, EOS included. `longest`: the
  /// most ids that training may make of it, EOS included.
  void add(const Example& example, Lengths longest, bool starts_document);
  /// The same of ids that training takes as they are.
  void add(std::span<const std::int32_t> source, std::span<const std::int32_t> target, bool starts_document);
  [[nodiscard]] std::uint64_t examples() const noexcept { return examples_; }

  /// The whole file. `note`: JSON that travels with the examples.
  [[nodiscard]] std::string bytes(const Digest& tokenizer, const Digest& recipe, std::string_view note = "{}") const;

 private:
  struct Side {
    std::vector<std::uint32_t> offsets{0};
    std::vector<std::uint32_t> lengths;
    std::string values;
    std::uint64_t ids = 0;
    std::uint32_t longest = 0;
  };
  void add(Side& side, std::string_view text, std::span<const std::int32_t> ids, std::uint32_t longest) const;

  std::uint32_t value_width_, sides_;
  bool places_, has_loss_ = false;  // has_loss_: some values bear none
  std::uint64_t examples_ = 0, documents_begun_ = 0;
  std::string documents_;
  Side source_, target_;
  std::vector<bool> loss_;  // of the target's values; empty: all bear loss
};

/// Bytes an id takes for a vocabulary of `pieces`.
[[nodiscard]] constexpr std::uint32_t id_width_of(std::int64_t pieces) { return pieces <= 65536 ? 2 : 4; }

}  // namespace argosy::data
