#include "checkpoint/shard_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace argosy::checkpoint {

std::string shard_name(int rank, int world) {
  constexpr int flat_limit = 4096, folder_size = 512;
  const std::string name = fmt::format("shard-{:05}-of-{:05}.h5", rank, world);
  return world <= flat_limit ? name : fmt::format("s{:02}/{}", rank / folder_size, name);
}

ARGOSY_WIDEST bool all_finite(std::span<const float> values) noexcept {
  constexpr std::uint32_t exponent = 0x7f800000U;
  std::uint32_t bad = 0;  // no early exit: the loop is one vector compare an element
  for (const float value : values) bad |= (std::bit_cast<std::uint32_t>(value) & exponent) == exponent ? 1U : 0U;
  return bad == 0;
}

bool all_finite(Bytes values, DType dtype) noexcept {
  if (dtype == DType::f32) {
    const auto* const floats = reinterpret_cast<const float*>(values.data());
    return all_finite({floats, values.size() / sizeof(float)});
  }
  if (dtype != DType::bf16) return true;
  constexpr std::uint16_t exponent = 0x7f80U;
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(values.data());
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < values.size() / sizeof(std::uint16_t); ++i)
    bad |= (halves[i] & exponent) == exponent ? 1U : 0U;
  return bad == 0;
}

void widen_bf16(std::span<float> values) noexcept {
  // The i-th float ends before the i+1st half begins: ascending, nothing is overwritten that is still to be read.
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + values.size() * sizeof bits + i * sizeof bits, sizeof bits);
    values[i] = f32_from_bf16(bits);
  }
}

Digest root_digest(const ShardMap& map, std::span<const std::vector<Digest>> tables) {
  ARGOSY_CHECK(map.datasets.size() == tables.size(), "{} datasets, {} digest tables", map.datasets.size(),
               tables.size());
  Hasher hasher;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const DatasetSpec& spec = map.datasets[i].spec;
    const std::uint64_t size_bytes = spec.size_bytes();
    hasher.update(spec.name).update(std::string_view{"\0", 1});
    hasher.update(std::as_bytes(std::span{&size_bytes, 1})).update(std::as_bytes(std::span{tables[i]}));
  }
  return hasher.digest();
}

std::vector<Digest> write_blocks(File& file, Bytes bytes, std::uint64_t offset, bool* finite) {
  std::vector<Digest> table;
  table.reserve((bytes.size() + block_bytes - 1) / block_bytes);
  for (std::size_t block = 0; block < bytes.size(); block += block_bytes) {
    const std::size_t end = std::min<std::size_t>(block + block_bytes, bytes.size());
    Hasher hasher;
    for (std::size_t at = block; at < end; at += piece_bytes) {
      const Bytes piece = bytes.subspan(at, std::min<std::size_t>(piece_bytes, end - at));
      file.write_at(piece, offset + at);  // first: it brings the piece into the cache while it copies
      hasher.update(piece);
      if (finite != nullptr) *finite = all_finite(piece, DType::f32) && *finite;
    }
    if (end - block == block_bytes)
      file.start_writeback(offset + block, block_bytes);  // the disk need not wait for fsync
    table.push_back(hasher.digest());
  }
  return table;
}

Written write_shard(const Files& files, const Path& path, const ShardMap& map, std::span<const Bytes> payload) {
  ARGOSY_CHECK(payload.size() == map.datasets.size(), "{} datasets, {} payloads", map.datasets.size(), payload.size());
  File file = files.update(path);
  file.reserve(map.size_bytes);
  Written written{.size_bytes = map.size_bytes};
  std::vector<std::vector<Digest>> tables;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    const ShardMap::Dataset& dataset = map.datasets[i];
    const Bytes bytes = payload[i];
    ARGOSY_CHECK(bytes.size() == dataset.spec.size_bytes(), "{}: {} bytes, not {}", dataset.spec.name, bytes.size(),
                 dataset.spec.size_bytes());
    const bool floats = dataset.spec.dtype == DType::f32;
    tables.push_back(write_blocks(file, bytes, dataset.offset, floats ? &written.finite : nullptr));
    if (!tables.back().empty()) file.write_at(std::as_bytes(std::span{tables.back()}), dataset.digest_offset);
  }
  written.root = root_digest(map, tables);
  file.sync();
  file.close();
  return written;
}

}  // namespace argosy::checkpoint
