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

/// Bit i % 8 of byte i / 8.
std::string packed(const std::vector<bool>& bits) {
  std::string bytes((bits.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 1 << i % 8);
  }
  return bytes;
}

}  // namespace

ShardWriter::ShardWriter(std::uint32_t value_width, std::uint32_t sides, bool places)
    : value_width_(value_width), sides_(sides), places_(places) {
  ARGOSY_CHECK(value_width == 1 || value_width == 2 || value_width == 4, "{}", value_width);
  ARGOSY_CHECK(sides == 1 || sides == 2, "{}", sides);
}

void ShardWriter::add(Side& side, std::string_view text, std::span<const std::int32_t> ids,
                      std::uint32_t longest) const {
  if (value_width_ == 1) {
    side.values += text;
  } else {
    for (const std::int32_t id : ids) {
      const auto value = static_cast<std::uint32_t>(id);
      ARGOSY_CHECK(id >= 0 && (value_width_ == 4 || value <= std::numeric_limits<std::uint16_t>::max()), "id {}", id);
      side.values.append(reinterpret_cast<const char*>(&value), value_width_);
    }
  }
  side.offsets.push_back(narrow<std::uint32_t>(side.values.size() / value_width_));
  side.lengths.push_back(longest);
  side.ids += longest;
  side.longest = std::max(side.longest, longest);
}

void ShardWriter::add(const Example& example, Lengths longest, bool starts_document) {
  if (examples_ % 8 == 0) documents_.push_back('\0');
  if (starts_document) documents_.back() = static_cast<char>(documents_.back() | 1 << examples_ % 8);
  documents_begun_ += starts_document ? 1 : 0;
  ++examples_;
  if (sides_ == 2) add(source_, example.source_text, example.source, longest.source);
  const std::uint64_t before = target_.offsets.back();
  add(target_, example.target_text, example.target, longest.target);
  has_loss_ = has_loss_ || !example.loss.empty();
  if (!has_loss_ || places_) return;
  loss_.resize(before, true);
  loss_.insert(loss_.end(), example.loss.begin(), example.loss.end());
  ARGOSY_CHECK(example.loss.empty() || loss_.size() == target_.offsets.back(), "{} of {} values", loss_.size(),
               target_.offsets.back());
  loss_.resize(target_.offsets.back(), true);
}

void ShardWriter::add(std::span<const std::int32_t> source, std::span<const std::int32_t> target,
                      bool starts_document) {
  Example example;
  example.source.assign(source.begin(), source.end());
  example.target.assign(target.begin(), target.end());
  add(example, {narrow<std::uint32_t>(source.size()), narrow<std::uint32_t>(target.size())}, starts_document);
}

std::string ShardWriter::bytes(const Digest& tokenizer, const Digest& recipe, std::string_view note) const {
  std::string file(sizeof(ShardHeader), '\0');
  append_padded(file, as_bytes(documents_));
  for (const Side* side : {&source_, &target_}) {
    if (side == &source_ && sides_ == 1) continue;
    append_padded(file, as_bytes(std::span{side->lengths}));
    append_padded(file, as_bytes(std::span{side->offsets}));
    append_padded(file, as_bytes(side->values));
  }
  append_padded(file, as_bytes(packed(loss_)));
  append_padded(file, as_bytes(note));
  const std::size_t body_end = file.size();
  for (std::uint64_t block = 0; block < shard_blocks(body_end); ++block) {
    const std::size_t begin = std::max<std::size_t>(block * shard_block_bytes, sizeof(ShardHeader));
    const std::size_t end = std::min<std::size_t>((block + 1) * shard_block_bytes, body_end);
    const std::uint64_t digest = hash64(std::string_view{file}.substr(begin, end - begin));
    file.append(reinterpret_cast<const char*>(&digest), sizeof digest);
  }
  ShardHeader header;
  header.note_bytes = narrow<std::uint32_t>(note.size());
  header.value_width = value_width_;
  header.sides = sides_;
  header.examples = examples_;
  header.source_values = source_.offsets.back();
  header.target_values = target_.offsets.back();
  header.documents = documents_begun_;
  header.source_ids = source_.ids;
  header.target_ids = target_.ids;
  header.longest_source = source_.longest;
  header.longest_target = target_.longest;
  header.flags = (has_loss_ ? ShardHeader::has_loss : 0) | (places_ ? ShardHeader::has_places : 0);
  header.tokenizer = tokenizer.bytes;
  header.recipe = recipe.bytes;
  header.body = digest_of(std::string_view{file}.substr(body_end)).bytes;
  header.header = digest_of(std::as_bytes(std::span{&header, 1}).first(digested_header_bytes)).bytes;
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

}  // namespace argosy::data
