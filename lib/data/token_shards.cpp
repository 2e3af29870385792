#include "data/token_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
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
  if (header.version == 1) throw_old_shards(path);
  if (header.version != ShardHeader::own_version)
    refuse(path, "a token shard of version 2", fmt::format("version {}", header.version));
  if (digest_of(bytes.first(digested_header_bytes)).bytes != header.header) refuse_damaged(path, "its header");
  if ((header.id_width != 2 && header.id_width != 4) || (header.sides != 1 && header.sides != 2))
    refuse(path, "2 or 4 bytes an id and 1 or 2 sides", fmt::format("{} and {}", header.id_width, header.sides));
  if (std::ranges::count(header.reserved, 0) != std::ssize(header.reserved))
    refuse(path, "zeros in the reserved bytes of the header", "others, as a newer Argosy may write");
  // No count can exceed the file, so the sums below cannot overflow.
  if (std::max({header.examples, header.source_ids, header.target_ids}) > bytes.size()) {
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
    if (side == &shard.source_ && header.sides == 1) continue;
    side->ids = side == &shard.source_ ? header.source_ids : header.target_ids;
    side->offsets = section(header.examples * sizeof(std::uint64_t));
    side->lengths = section(header.examples * sizeof(std::uint32_t));
    side->at = section(side->ids * header.id_width);
  }
  shard.note_ = {reinterpret_cast<const char*>(section(header.note_bytes)), header.note_bytes};
  shard.body_end_ = at;
  const std::uint64_t blocks = shard_blocks(shard.body_end_);
  shard.block_digests_ = section(blocks * sizeof(std::uint64_t));
  if (at != bytes.size()) refuse(path, fmt::format("{} bytes", at), fmt::format("{}", bytes.size()));
  if (digest_of(bytes.subspan(shard.body_end_)).bytes != header.body) refuse_damaged(path, "its table of digests");
  shard.intact_ = std::make_unique<std::atomic<std::uint64_t>[]>(blocks / 64 + 1);
  shard.examples_ = header.examples;
  shard.sides_ = header.sides;
  shard.id_width_ = header.id_width;
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

void TokenShard::read(const Side& side, std::uint64_t example, std::vector<std::int32_t>& out) const {
  ARGOSY_CHECK(example < examples_, "{} of {}", example, examples_);
  touch(side.offsets + example * sizeof(std::uint64_t), sizeof(std::uint64_t));
  touch(side.lengths + example * sizeof(std::uint32_t), sizeof(std::uint32_t));
  const auto offset = load<std::uint64_t>(side.offsets, example);
  const auto length = load<std::uint32_t>(side.lengths, example);
  if (offset > side.ids || length > side.ids - offset)
    refuse(path_, fmt::format("example {} within {} ids", example, side.ids), fmt::format("{} + {}", offset, length));
  touch(side.at + offset * id_width_, std::uint64_t{length} * id_width_);
  out.resize(length);
  for (std::uint32_t i = 0; i < length; ++i) {
    out[i] = id_width_ == 2 ? static_cast<std::int32_t>(load<std::uint16_t>(side.at, offset + i))
                            : load<std::int32_t>(side.at, offset + i);
  }
}

void TokenShard::source(std::uint64_t example, std::vector<std::int32_t>& out) const {
  ARGOSY_CHECK(has_source(), "{}", path_.string());
  read(source_, example, out);
}

void TokenShard::target(std::uint64_t example, std::vector<std::int32_t>& out) const { read(target_, example, out); }

Lengths TokenShard::lengths(std::uint64_t example) const {
  ARGOSY_CHECK(example < examples_, "{} of {}", example, examples_);
  const auto length = [&](const Side& side) {
    touch(side.lengths + example * sizeof(std::uint32_t), sizeof(std::uint32_t));
    return load<std::uint32_t>(side.lengths, example);
  };
  return {.source = has_source() ? length(source_) : 0, .target = length(target_)};
}

std::int64_t TokenShard::check_lengths(const Side& side) const {
  touch(side.lengths, examples_ * sizeof(std::uint32_t));
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < examples_; ++i) {
    const auto length = load<std::uint32_t>(side.lengths, i);
    if (length == 0) refuse(path_, "examples of at least one token id", fmt::format("none in example {}", i));
    sum += length;
  }
  if (sum != side.ids) refuse(path_, fmt::format("lengths of {} ids together", side.ids), fmt::format("{}", sum));
  return static_cast<std::int64_t>(sum);
}

TokenShard::Totals TokenShard::check_lengths() const {
  return {.source = has_source() ? check_lengths(source_) : 0, .target = check_lengths(target_)};
}

bool TokenShard::starts_document(std::uint64_t example) const {
  ARGOSY_CHECK(example < examples_, "{} of {}", example, examples_);
  touch(documents_ + example / 8, 1);
  return (static_cast<unsigned>(documents_[example / 8]) >> example % 8 & 1U) != 0;
}

void TokenShard::verify() const {
  for (std::uint64_t block = 0; block < shard_blocks(body_end_); ++block) check_block(block);
}

std::string_view TokenShard::note() const {
  touch(reinterpret_cast<const std::byte*>(note_.data()), note_.size());
  return note_;
}

TokenShards TokenShards::open(const Files& files, const DataConfig& config, const Tokenizer& tokenizer, Part part) {
  const Path folder = config.shards;
  const ShardIndex index = read_shard_index(files, folder);
  const std::string where = shard_index_path(folder).string();
  constexpr const char* remedy = "run preprocess with this configuration, or correct data.shards";
  if (const std::string got = index.tokenizer.hex(), wanted = tokenizer.digest().hex(); got != wanted)
    throw_claim(Fault::data,
                fmt::format("{}: the token shards were made with another tokenizer (digest {}) than data.tokenizer "
                            "(digest {})",
                            where, got, wanted),
                where, "token shards of tokenizer " + wanted, got, remedy);
  const auto names = [](const auto& corpora) {
    std::string text;
    for (const auto& corpus : corpora) text += (text.empty() ? "" : ", ") + corpus.name;
    return text;
  };
  if (names(index.corpora) != names(config.corpora))
    throw_error(Fault::data, where, "token shards of the corpora " + names(config.corpora),
                "those of " + names(index.corpora), remedy);

  TokenShards shards;
  shards.fingerprint_ = index.recipe;
  for (std::size_t c = 0; c < index.corpora.size(); ++c) {
    const ShardIndex::Corpus& wanted = index.corpora[c];
    const std::size_t first_shard = shards.shards_.size();
    std::vector<std::uint64_t> first{0};
    TokenShard::Totals totals;
    for (const ShardIndex::Shard& entry : wanted.shards) {
      TokenShard shard = TokenShard::open(files, folder / entry.file);
      if (shard.size() != entry.examples || shard.size_bytes() != entry.size_bytes ||
          shard.body_digest() != entry.digest || shard.tokenizer_digest() != index.tokenizer ||
          shard.has_source() != (wanted.texts.size() == 2))
        refuse(folder / entry.file, "the shard that the index names", "another one");
      const TokenShard::Totals ids = shard.check_lengths();
      totals.source += ids.source;
      totals.target += ids.target;
      first.push_back(first.back() + shard.size());
      shards.shards_.push_back(std::move(shard));
    }
    if (totals.source != wanted.src_tokens || totals.target != wanted.tgt_tokens)
      refuse(shard_index_path(folder), fmt::format("{} and {} ids of {}", totals.source, totals.target, wanted.name),
             fmt::format("{} and {}", wanted.src_tokens, wanted.tgt_tokens));
    const std::span own = std::span{shards.shards_}.subspan(first_shard);

    // The part: [begin, end) of the corpus, cut where a document begins once the share of tgt_tokens is reached.
    std::uint64_t begin = 0, end = first.back();
    if (config.split && part != Part::all) {
      const double total = static_cast<double>(wanted.tgt_tokens);
      const auto cut = [&](double share) {
        double sum = 0;
        for (std::size_t s = 0; s < own.size(); ++s) {
          for (std::uint64_t i = 0; i < own[s].size(); ++i) {
            if (sum >= share * total - 1e-6 && own[s].starts_document(i)) return first[s] + i;
            sum += own[s].lengths(i).target;
          }
        }
        return first.back();
      };
      const std::uint64_t border = cut(config.split->train);
      if (part == Part::train) {
        end = border;
      } else {
        begin = border;
        end = cut(config.split->train + config.split->validation);
      }
    }
    shards.corpora_.push_back({wanted.name, config.corpora[c].weight, shards.lengths_.size(), end - begin});
    for (std::size_t s = 0; s < own.size(); ++s) {
      const std::uint64_t from = std::max(begin, first[s]), to = std::min(end, first[s + 1]);
      if (from >= to) continue;
      shards.runs_.push_back({shards.lengths_.size(), from - first[s], first_shard + s});
      for (std::uint64_t i = from; i < to; ++i) shards.lengths_.push_back(own[s].lengths(i - first[s]));
    }
    if (c == 0) shards.has_source_ = wanted.texts.size() == 2;
  }
  return shards;
}

std::pair<const TokenShard&, std::uint64_t> TokenShards::place_of(std::uint64_t example) const {
  ARGOSY_CHECK(example < size(), "{} of {}", example, size());
  const Run& run = *std::prev(std::ranges::upper_bound(runs_, example, {}, &Run::first));
  return {shards_[run.shard], example - run.first + run.in_shard};
}

void TokenShards::source(std::uint64_t example, std::vector<std::int32_t>& out) const {
  const auto [shard, i] = place_of(example);
  shard.source(i, out);
}

void TokenShards::target(std::uint64_t example, std::vector<std::int32_t>& out) const {
  const auto [shard, i] = place_of(example);
  shard.target(i, out);
}

bool TokenShards::starts_document(std::uint64_t example) const {
  const auto [shard, i] = place_of(example);
  return shard.starts_document(i);
}

void TokenShards::require_at_most(std::int64_t positions, const Tokenizer& tokenizer) const {
  const auto found = std::ranges::find_if(
      lengths_, [&](const Lengths& each) { return std::max(each.source, each.target) > positions; });
  if (found == lengths_.end()) return;
  const auto example = static_cast<std::uint64_t>(found - lengths_.begin());
  const Corpus& corpus =
      *std::ranges::find_if(corpora_, [&](const Corpus& each) { return example < each.first + each.size; });
  std::vector<std::int32_t> ids;
  const bool is_source = found->source > positions;
  is_source ? source(example, ids) : target(example, ids);
  const auto count = ids.size();
  ids.resize(std::min<std::size_t>(count, 12));
  throw_error(
      Fault::data, fmt::format("corpus {}, pair {}", corpus.name, example - corpus.first + 1),
      fmt::format("pairs of at most {} pieces a side, which the model has positions for", positions),
      fmt::format("a {} of {} pieces, \"{}…\"", is_source ? "source" : "target", count, tokenizer.decode(ids)),
      "raise model.max_positions, or leave such pairs out: add the transform max_length to the transforms of this "
      "corpus, and run preprocess");
}

}  // namespace argosy::data
