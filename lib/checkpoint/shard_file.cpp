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

Digest root_digest(std::span<const DatasetSpec> specs, std::span<const std::vector<Digest>> tables) {
  ARGOSY_CHECK(specs.size() == tables.size(), "{} datasets, {} digest tables", specs.size(), tables.size());
  Hasher hasher;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::uint64_t size_bytes = specs[i].size_bytes();
    hasher.update(specs[i].name).update(std::string_view{"\0", 1});
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
      if (finite != nullptr) {
        const auto* values = reinterpret_cast<const float*>(piece.data());
        *finite = all_finite({values, piece.size() / sizeof(float)}) && *finite;
      }
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
  Written written;
  std::vector<DatasetSpec> specs;
  std::vector<std::vector<Digest>> tables;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    const ShardMap::Dataset& dataset = map.datasets[i];
    const Bytes bytes = payload[i];
    ARGOSY_CHECK(bytes.size() == dataset.spec.size_bytes(), "{}: {} bytes, not {}", dataset.spec.name, bytes.size(),
                 dataset.spec.size_bytes());
    const bool floats = dataset.spec.dtype == DType::f32;
    tables.push_back(write_blocks(file, bytes, dataset.offset, floats ? &written.finite : nullptr));
    if (!tables.back().empty()) file.write_at(std::as_bytes(std::span{tables.back()}), dataset.digest_offset);
    specs.push_back(dataset.spec);
  }
  written.root = root_digest(specs, tables);
  file.sync();
  file.close();
  return written;
}

ShardIndex index_of(std::span<const partition::FlatSpace> spaces, int rank) {
  ShardIndex index;
  std::uint32_t first_param = 0;
  for (std::size_t unit = 0; unit < spaces.size(); ++unit) {
    for (const partition::Interval& interval : partition::intervals_of(spaces[unit], rank)) {
      index.param_id.push_back(first_param + static_cast<std::uint32_t>(interval.param));
      index.begin.push_back(static_cast<std::uint64_t>(interval.begin));
      index.end.push_back(static_cast<std::uint64_t>(interval.end));
      index.offset.push_back(static_cast<std::uint64_t>(interval.local_offset));
      index.unit.push_back(static_cast<std::uint32_t>(unit));
    }
    first_param += static_cast<std::uint32_t>(spaces[unit].params().size());
  }
  return index;
}

std::vector<Bytes> columns_of(const ShardIndex& index) {
  return {std::as_bytes(std::span{index.param_id}), std::as_bytes(std::span{index.begin}),
          std::as_bytes(std::span{index.end}), std::as_bytes(std::span{index.offset}),
          std::as_bytes(std::span{index.unit})};
}

std::vector<DatasetSpec> specs_of(std::span<const std::string> unit_names, std::span<const partition::FlatSpace> spaces,
                                  std::span<const std::vector<spec::StateTensor>> tensors, DType weights, int rank) {
  std::vector<DatasetSpec> specs;
  std::uint64_t intervals = 0;
  for (std::size_t unit = 0; unit < spaces.size(); ++unit) {
    for (const spec::StateTensor& tensor : tensors[unit]) {
      const bool narrow = weights == DType::bf16 && tensor.name == spec::weights_tensor;
      const spec::OwnedPart part = spec::owned_parts(spaces[unit], tensor)[static_cast<std::size_t>(rank)];
      specs.push_back({fmt::format("unit/{}/{}", unit_names[unit], narrow ? "param" : tensor.name),
                       narrow ? DType::bf16 : tensor.dtype, static_cast<std::uint64_t>(part.size)});
    }
    intervals += partition::intervals_of(spaces[unit], rank).size();
  }
  for (const char* column : {"param_id", "begin", "end", "offset", "unit"}) {
    const bool narrow = column[0] == 'p' || column[0] == 'u';
    specs.push_back({fmt::format("index/{}", column), narrow ? DType::u32 : DType::u64, intervals});
  }
  return specs;
}

}  // namespace argosy::checkpoint
