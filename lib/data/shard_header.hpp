#pragma once

#include <array>
#include <cstdint>

/// The first 128 bytes of a token shard as they stand in the file (FORMAT.md).
namespace argosy::data {

struct ShardHeader {
  static constexpr std::array<char, 8> kMagic{'A', 'R', 'G', 'T', 'O', 'K', 'E', 'N'};
  static constexpr std::uint32_t kVersion = 1;

  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion, id_width = 0, sides = 0, note_bytes = 0;
  std::uint64_t examples = 0, source_ids = 0, target_ids = 0;
  std::array<std::uint8_t, 16> tokenizer{}, recipe{}, body{}, unused{}, header{};
};
static_assert(sizeof(ShardHeader) == 128);

/// Bytes of the header that its own digest covers.
inline constexpr std::size_t kDigestedHeaderBytes = 112;

[[nodiscard]] constexpr std::uint64_t padded_to_8(std::uint64_t size_bytes) { return (size_bytes + 7) / 8 * 8; }

}  // namespace argosy::data
