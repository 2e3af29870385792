#include "data/token_shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.hpp"
#include "data/record_line.hpp"
#include "data/shard_index.hpp"
#include "data/shard_writer.hpp"

namespace argosy::data {
namespace {

[[noreturn]] void refuse(const Path& path, std::string wanted, std::string got) {
  throw_error(Fault::corrupt, path.string(), std::move(wanted), std::move(got), "remove the file and run preprocess");
}

[[noreturn]] void refuse_damaged(const Path& path, const std::string& what) {
  throw_claim(Fault::corrupt, fmt::format("{} is damaged: the digest of {} is not the stored one", path.string(), what),
              path.string(), "the stored digest", "another", "remove the file and run preprocess");
}

template <class T>
T load(const std::byte* at, std::uint64_t index) {
  T value;
  std::memcpy(&value, at + index * sizeof(T), sizeof value);
  return value;
}

}  // namespace

TokenShard TokenShard::open(const Files& files, const Path& path) {
  Mapping mapping = files.map(path);
  TokenShard shard = of_bytes(mapping.bytes(), path);
  shard.mapping_ = std::move(mapping);
  return shard;
}

TokenShard TokenShard::of_bytes(Bytes bytes, const Path& path) {
  TokenShard shard;
  shard.path_ = path;
  shard.bytes_ = bytes;
  ShardHeader header;
  if (bytes.size() < sizeof header) refuse(path, "a token shard", fmt::format("{} bytes", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != ShardHeader::own_magic) refuse(path, "a token shard", "another kind of file");
  if (header.version > ShardHeader::own_version)
    refuse(path, fmt::format("a token shard of version {}", ShardHeader::own_version),
           fmt::format("version {}", header.version));
  const bool is_first = header.version <= 1;  // which had no digest of the header
  if (!is_first && digest_of(bytes.first(digested_header_bytes)).bytes != header.header)
    refuse_damaged(path, "its header");
  if (header.version < ShardHeader::own_version) throw_old_shards(path, header.version);
  const bool known_width = header.value_width == 1 || header.value_width == 2 || header.value_width == 4;
  if (!known_width || (header.sides != 1 && header.sides != 2))
    refuse(path, "1, 2 or 4 bytes a value and 1 or 2 sides",
           fmt::format("{} and {}", header.value_width, header.sides));
  const bool has_places = (header.flags & ShardHeader::has_places) != 0;
  if ((header.flags & ~(ShardHeader::has_loss | ShardHeader::has_places)) != 0 ||
      (has_places && header.value_width != 1) || std::ranges::count(header.reserved, 0) != std::ssize(header.reserved))
    refuse(path, "no flags but those for loss and, of text, for places, and zeros in the reserved bytes of the header",
           "others, as a newer Argosy may write");
  // No count can exceed the file, so the sums below cannot overflow.
  if (std::max({header.examples, header.source_values, header.target_values}) > bytes.size()) {
    refuse(path, "counts that fit the file", fmt::format("{} examples in {} bytes", header.examples, bytes.size()));
  }
  std::uint64_t at = sizeof header;
  const auto section = [&](std::uint64_t size_bytes) {
    const std::byte* begin = bytes.data() + std::min<std::uint64_t>(at, bytes.size());
    at += padded_to_8(size_bytes);
    return begin;
  };
  shard.documents_ = section((header.examples + 7) / 8);
  for (Side* side : {&shard.source_, &shard.target_}) {
    const bool is_source = side == &shard.source_;
    if (is_source && header.sides == 1) continue;
    side->values = is_source ? header.source_values : header.target_values;
    side->ids = is_source ? header.source_ids : header.target_ids;
    side->longest = is_source ? header.longest_source : header.longest_target;
    side->lengths = section(header.examples * sizeof(std::uint32_t));
    side->offsets = section((header.examples + 1) * sizeof(std::uint32_t));
    side->at = section(side->values * header.value_width);
  }
  if ((header.flags & ShardHeader::has_loss) != 0 && !has_places) shard.loss_ = section((header.target_values + 7) / 8);
  shard.note_ = {reinterpret_cast<const char*>(section(header.note_bytes)), header.note_bytes};
  shard.body_end_ = at;
  const std::uint64_t blocks = shard_blocks(shard.body_end_);
  shard.block_digests_ = section(blocks * sizeof(std::uint64_t));
  if (at != bytes.size()) refuse(path, fmt::format("{} bytes", at), fmt::format("{}", bytes.size()));
  if (digest_of(bytes.subspan(shard.body_end_)).bytes != header.body) refuse_damaged(path, "its table of digests");
  shard.intact_ = std::make_unique<std::atomic<std::uint64_t>[]>(blocks / 64 + 1);
  shard.examples_ = header.examples;
  shard.sides_ = header.sides;
  shard.value_width_ = header.value_width;
  shard.flags_ = header.flags;
  shard.documents_begun_ = header.documents;
  shard.tokenizer_digest_.bytes = header.tokenizer;
  shard.recipe_digest_.bytes = header.recipe;
  shard.body_digest_.bytes = header.body;
  return shard;
}

/// Compares the blocks that hold these bytes with their digests, unless somebody has. Threads may race: both compare.
void TokenShard::touch(const std::byte* at, std::uint64_t size_bytes) const {
  if (size_bytes == 0) return;
  const auto begin = static_cast<std::uint64_t>(at - bytes_.data());
  for (std::uint64_t block = begin / shard_block_bytes; block <= (begin + size_bytes - 1) / shard_block_bytes;
       ++block) {
    if ((intact_[block / 64].load(std::memory_order_relaxed) >> block % 64 & 1U) == 0) check_block(block);
  }
}

void TokenShard::check_block(std::uint64_t block) const {
  const std::uint64_t begin = std::max<std::uint64_t>(block * shard_block_bytes, sizeof(ShardHeader));
  const std::uint64_t end = std::min((block + 1) * shard_block_bytes, body_end_);
  if (hash64(bytes_.subspan(begin, end - begin)) != load<std::uint64_t>(block_digests_, block))
    refuse_damaged(path_, fmt::format("bytes {} to {}", begin, end));
  intact_[block / 64].fetch_or(std::uint64_t{1} << block % 64, std::memory_order_relaxed);
}

TokenShard::Range TokenShard::range_of(const Side& side, std::uint64_t example) const {
  ARGOSY_CHECK(example < examples_, "{} of {}", example, examples_);
  touch(side.offsets + example * sizeof(std::uint32_t), 2 * sizeof(std::uint32_t));
  const auto begin = std::uint64_t{load<std::uint32_t>(side.offsets, example)};
  const auto end = std::uint64_t{load<std::uint32_t>(side.offsets, example + 1)};
  if (begin > end || end > side.values)
    refuse(path_, fmt::format("example {} within {} values", example, side.values),
           fmt::format("{} to {}", begin, end));
  touch(side.at + begin * value_width_, (end - begin) * value_width_);
  return {begin, end - begin};
}

void TokenShard::read_ids(const Side& side, std::uint64_t example, std::vector<std::int32_t>& out) const {
  ARGOSY_CHECK(!is_text(), "{}", path_.string());
  const Range range = range_of(side, example);
  out.resize(range.size);
  for (std::uint64_t i = 0; i < range.size; ++i) {
    out[i] = value_width_ == 2 ? static_cast<std::int32_t>(load<std::uint16_t>(side.at, range.begin + i))
                               : load<std::int32_t>(side.at, range.begin + i);
  }
}

void TokenShard::read_text(const Side& side, std::uint64_t example, std::string& out) const {
  const Range range = range_of(side, example);
  out.assign(reinterpret_cast<const char*>(side.at + range.begin), range.size);
}

void TokenShard::source(std::uint64_t example, std::vector<std::int32_t>& out) const {
  ARGOSY_CHECK(has_source(), "{}", path_.string());
  read_ids(source_, example, out);
}

void TokenShard::target(std::uint64_t example, std::vector<std::int32_t>& out) const {
  read_ids(target_, example, out);
}

void TokenShard::read(std::uint64_t example, Example& out) const {
  out = {};
  if (is_text()) {
    if (has_source()) read_text(source_, example, out.source_text);
    read_text(target_, example, out.target_text);
  } else {
    if (has_source()) read_ids(source_, example, out.source);
    read_ids(target_, example, out.target);
  }
  if (has_places()) {
    const std::size_t sources = out.source_text.size(), targets = out.target_text.size();
    if (targets == 0 || targets % sizeof(RecordPlace) != 0 || (sources != 0 && sources != targets))
      refuse(path_, fmt::format("places of records as example {}", example),
             fmt::format("{} and {} bytes", sources, targets));
  }
  if (loss_ == nullptr) return;
  const Range range = range_of(target_, example);
  out.loss.resize(range.size);
  if (range.size > 0) touch(loss_ + range.begin / 8, (range.begin + range.size - 1) / 8 - range.begin / 8 + 1);
  for (std::uint64_t i = range.begin; i < range.begin + range.size; ++i)
    out.loss[i - range.begin] = (static_cast<unsigned>(loss_[i / 8]) >> i % 8 & 1U) != 0;
}

std::uint32_t TokenShard::length(const Side& side, std::uint64_t example) const {
  touch(side.lengths + example * sizeof(std::uint32_t), sizeof(std::uint32_t));
  const auto length = load<std::uint32_t>(side.lengths, example);
  if (length == 0 || length > side.longest)
    refuse(path_, fmt::format("a length from 1 to {}", side.longest),
           fmt::format("{} for example {}", length, example));
  return length;
}

Lengths TokenShard::lengths(std::uint64_t example) const {
  ARGOSY_CHECK(example < examples_, "{} of {}", example, examples_);
  return {.source = has_source() ? length(source_, example) : 0, .target = length(target_, example)};
}

void TokenShard::check(const Side& side) const {
  std::uint64_t sum = 0, end = 0;
  std::uint32_t longest = 0;
  for (std::uint64_t i = 0; i < examples_; ++i) {
    const std::uint32_t ids = length(side, i);
    sum += ids;
    longest = std::max(longest, ids);
    const Range range = range_of(side, i);
    if (range.begin != end)
      refuse(path_, fmt::format("example {} at value {}", i, end), fmt::format("at {}", range.begin));
    end += range.size;
    if (!is_text() && range.size > ids)
      refuse(path_, fmt::format("at most {} ids in example {}", ids, i), fmt::format("{}", range.size));
  }
  if (sum != side.ids || longest != side.longest || end != side.values)
    refuse(path_, fmt::format("{} ids, at most {} in an example, and {} values", side.ids, side.longest, side.values),
           fmt::format("{}, {} and {}", sum, longest, end));
}

void TokenShard::check() const {
  if (has_source()) check(source_);
  check(target_);
  std::uint64_t documents = 0;
  for (std::uint64_t i = 0; i < examples_; ++i) documents += marks_document(i) ? 1 : 0;
  if (documents != documents_begun_)
    refuse(path_, fmt::format("{} documents", documents_begun_), fmt::format("{}", documents));
}

bool TokenShard::marks_document(std::uint64_t example) const {
  touch(documents_ + example / 8, 1);
  return (static_cast<unsigned>(documents_[example / 8]) >> example % 8 & 1U) != 0;
}

bool TokenShard::starts_document(std::uint64_t example) const {
  ARGOSY_CHECK(example < examples_, "{} of {}", example, examples_);
  return documents_begun_ == examples_ || marks_document(example);
}

std::uint64_t TokenShard::document_begin(std::uint64_t from, std::uint64_t n) const {
  if (documents_begun_ == examples_) return std::min(from + n, examples_);
  constexpr std::uint64_t word_bits = 64;
  for (std::uint64_t at = from / word_bits * word_bits; at < examples_; at += word_bits) {
    const std::uint64_t size_bytes = std::min<std::uint64_t>(sizeof(std::uint64_t), (examples_ - at + 7) / 8);
    touch(documents_ + at / 8, size_bytes);
    std::uint64_t word = 0;
    std::memcpy(&word, documents_ + at / 8, size_bytes);
    if (at < from) word &= ~std::uint64_t{0} << (from - at);
    const auto begun = static_cast<std::uint64_t>(std::popcount(word));
    if (begun <= n) {
      n -= begun;
      continue;
    }
    for (; n > 0; --n) word &= word - 1;
    return at + static_cast<std::uint64_t>(std::countr_zero(word));
  }
  return examples_;
}

void TokenShard::verify() const {
  for (std::uint64_t block = 0; block < shard_blocks(body_end_); ++block) check_block(block);
}

std::string_view TokenShard::note() const {
  touch(reinterpret_cast<const std::byte*>(note_.data()), note_.size());
  return note_;
}

}  // namespace argosy::data
