#include <algorithm>
#include <cstring>

#include "core/hash.hpp"
#include "data/shard_writer.hpp"
#include "data/token_shard.hpp"
#include "fuzz/fuzz.hpp"

namespace argosy::data {
namespace {

/// The file with version, lengths and digests that fit what its header says, so that what lies behind them is reached;
/// empty where its header promises more than a small file.
std::vector<std::byte> fitting(Bytes bytes) {
  constexpr std::uint64_t largest = 1U << 20U;
  ShardHeader header;
  if (bytes.size() < sizeof header) return {};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::max({header.examples, header.source_values, header.target_values}) > largest || header.value_width > 8)
    return {};
  const auto side = [&](std::uint64_t values) {
    return padded_to_8(header.examples * 4) + padded_to_8((header.examples + 1) * 4) +
           padded_to_8(values * header.value_width);
  };
  const std::uint64_t body_end =
      sizeof header + padded_to_8((header.examples + 7) / 8) + (header.sides == 1 ? 0 : side(header.source_values)) +
      side(header.target_values) +
      (header.flags == ShardHeader::has_loss ? padded_to_8((header.target_values + 7) / 8) : 0) +
      padded_to_8(header.note_bytes);
  if (body_end > largest) return {};

  header.magic = ShardHeader::own_magic;
  header.version = ShardHeader::own_version;
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  file.resize(body_end);
  for (std::uint64_t block = 0; block < shard_blocks(body_end); ++block) {
    const std::uint64_t begin = std::max<std::uint64_t>(block * shard_block_bytes, sizeof header);
    const std::uint64_t hash =
        hash64(Bytes{file}.subspan(begin, std::min((block + 1) * shard_block_bytes, body_end) - begin));
    const auto* const at = reinterpret_cast<const std::byte*>(&hash);
    file.insert(file.end(), at, at + sizeof hash);
  }
  header.body = digest_of(Bytes{file}.subspan(body_end)).bytes;
  std::memcpy(file.data(), &header, sizeof header);
  header.header = digest_of(Bytes{file}.first(digested_header_bytes)).bytes;
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

void read_all(const TokenShard& shard) {
  Example read;
  for (std::uint64_t example = 0; example < shard.size(); ++example) {
    shard.read(example, read);
    static_cast<void>(shard.document_begin(example, 1));
    static_cast<void>(shard.lengths(example));
    static_cast<void>(shard.starts_document(example));
  }
  static_cast<void>(shard.note());
}

}  // namespace
}  // namespace argosy::data

/// A token shard: as it is, and with lengths and digests that fit; then every example, also of one whose lengths are
/// refused.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace argosy;
  const Bytes bytes{reinterpret_cast<const std::byte*>(data), size};
  const std::vector<std::byte> file = data::fitting(bytes);
  for (const Bytes each : {bytes, Bytes{file}}) {
    test::refuses_or_takes([&] { data::read_all(data::TokenShard::of_bytes(each, "input")); });
    test::refuses_or_takes([&] {
      const data::TokenShard shard = data::TokenShard::of_bytes(each, "input");
      shard.check();
      shard.verify();
    });
  }
  return 0;
}
