#include "data/shard_writer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/error.hpp"

namespace argosy::data {
namespace {

void append_padded(std::string& to, Bytes bytes) {
  to.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  to.resize(padded_to_8(to.size()), '\0');
}

}  // namespace

ShardWriter::ShardWriter(std::uint32_t id_width, std::uint32_t sides) : id_width_(id_width), sides_(sides) {
  ARGOSY_CHECK(id_width == 2 || id_width == 4, "{}", id_width);
  ARGOSY_CHECK(sides == 1 || sides == 2, "{}", sides);
}

void ShardWriter::add(Side& side, std::span<const std::int32_t> ids) const {
  side.offsets.push_back(side.count);
  side.lengths.push_back(static_cast<std::uint32_t>(ids.size()));
  side.count += ids.size();
  for (const std::int32_t id : ids) {
    const auto value = static_cast<std::uint32_t>(id);
    ARGOSY_CHECK(id >= 0 && (id_width_ == 4 || value <= std::numeric_limits<std::uint16_t>::max()), "id {}", id);
    side.ids.append(reinterpret_cast<const char*>(&value), id_width_);
  }
}

void ShardWriter::add(std::span<const std::int32_t> source, std::span<const std::int32_t> target,
                      bool starts_document) {
  if (examples_ % 8 == 0) documents_.push_back('\0');
  if (starts_document) documents_.back() = static_cast<char>(documents_.back() | 1 << examples_ % 8);
  ++examples_;
  if (sides_ == 2) add(source_, source);
  add(target_, target);
}

std::string ShardWriter::bytes(const Digest& tokenizer, const Digest& recipe, std::string_view note) const {
  std::string file(sizeof(ShardHeader), '\0');
  append_padded(file, as_bytes(documents_));
  for (const Side* side : {&source_, &target_}) {
    if (side == &source_ && sides_ == 1) continue;
    append_padded(file, as_bytes(std::span{side->offsets}));
    append_padded(file, as_bytes(std::span{side->lengths}));
    append_padded(file, as_bytes(side->ids));
  }
  append_padded(file, as_bytes(note));
  const std::size_t body_end = file.size();
  for (std::uint64_t block = 0; block < shard_blocks(body_end); ++block) {
    const std::size_t begin = std::max<std::size_t>(block * shard_block_bytes, sizeof(ShardHeader));
    const std::size_t end = std::min<std::size_t>((block + 1) * shard_block_bytes, body_end);
    const std::uint64_t digest = hash64(std::string_view{file}.substr(begin, end - begin));
    file.append(reinterpret_cast<const char*>(&digest), sizeof digest);
  }
  ShardHeader header;
  header.note_bytes = static_cast<std::uint32_t>(note.size());
  header.id_width = id_width_;
  header.sides = sides_;
  header.examples = examples_;
  header.source_ids = source_.count;
  header.target_ids = target_.count;
  header.tokenizer = tokenizer.bytes;
  header.recipe = recipe.bytes;
  header.body = digest_of(std::string_view{file}.substr(body_end)).bytes;
  header.header = digest_of(std::as_bytes(std::span{&header, 1}).first(digested_header_bytes)).bytes;
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

}  // namespace argosy::data
