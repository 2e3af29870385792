#pragma once

#include <array>
#include <cstdint>

/// The first 256 bytes of a token shard as they stand in the file, and the blocks its digests cover (FORMAT.md).
namespace argosy::data {

struct ShardHeader {
  static constexpr std::array<char, 8> own_magic{'A', 'R', 'G', 'T', 'O', 'K', 'E', 'N'};
  static constexpr std::uint32_t own_version = 2;

  std::array<char, 8> magic = own_magic;
  std::uint32_t version = own_version, id_width = 0, sides = 0, note_bytes = 0;
  std::uint64_t examples = 0, source_ids = 0, target_ids = 0;
  std::array<std::uint8_t, 16> tokenizer{}, recipe{}, body{};
  std::array<std::uint8_t, 144> reserved{};
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

}  // namespace argosy::data
