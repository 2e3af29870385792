#include "data/token_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "data/shard_index.hpp"

namespace argosy::data {
namespace {

constexpr const char* remake = "run preprocess with this configuration, or correct data.shards";

/// Opens the shards that the index names, of one corpus.
std::vector<TokenShard> open_shards(const Files& files, const Path& folder, const ShardIndex::Corpus& corpus,
                                    const Pipeline& pipeline) {
  std::vector<TokenShard> shards;
  for (const ShardIndex::Shard& entry : corpus.shards) {
    TokenShard shard = TokenShard::open(files, folder / entry.file);
    if (shard.size() != entry.examples || shard.size_bytes() != entry.size_bytes ||
        shard.body_digest() != entry.digest || shard.tokenizer_digest() != pipeline.tokenizer().digest() ||
        shard.has_source() != (corpus.texts.size() == 2) || shard.is_text() != pipeline.stores_text())
      throw_error(Fault::corrupt, (folder / entry.file).string(), "the shard that the index names", "another one",
                  "remove the file and run preprocess");
    shards.push_back(std::move(shard));
  }
  return shards;
}

void require_same(const ShardIndex& index, const DataConfig& config, const Tokenizer& tokenizer,
                  const std::string& where) {
  if (const std::string got = index.tokenizer.hex(), wanted = tokenizer.digest().hex(); got != wanted)
    throw_claim(Fault::data,
                fmt::format("{}: the token shards were made with another tokenizer (digest {}) than data.tokenizer "
                            "(digest {})",
                            where, got, wanted),
                where, "token shards of tokenizer " + wanted, got, remake);
  const auto names = [](const auto& corpora) {
    std::string text;
    for (const auto& corpus : corpora) text += (text.empty() ? "" : ", ") + corpus.name;
    return text;
  };
  if (names(index.corpora) != names(config.corpora))
    throw_error(Fault::data, where, "token shards of the corpora " + names(config.corpora),
                "those of " + names(index.corpora), remake);
}

/// Documents that begin among the examples [begin, end) of a shard.
std::uint64_t documents_in(const TokenShard& shard, std::uint64_t begin, std::uint64_t end) {
  if (begin == 0 && end == shard.size()) return shard.totals().documents;
  std::uint64_t documents = 0;
  for (std::uint64_t i = begin; i < end; ++i) documents += shard.starts_document(i) ? 1 : 0;
  return documents;
}

/// The example where the first document begins once the share of tgt_tokens is reached: its shard, and its number
/// there.
std::pair<std::size_t, std::uint64_t> border_at(std::span<const TokenShard> shards, double share) {
  double total = 0, sum = 0;
  for (const TokenShard& shard : shards) total += static_cast<double>(shard.totals().target);
  const double goal = share * total - 1e-6;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const auto size = static_cast<double>(shards[s].totals().target);
    if (sum + size < goal) {
      sum += size;
      continue;
    }
    for (std::uint64_t i = 0; i < shards[s].size(); ++i) {
      if (sum >= goal && shards[s].starts_document(i)) return {s, i};
      sum += shards[s].lengths(i).target;
    }
  }
  return {shards.size(), 0};
}

}  // namespace

void TokenShards::add_corpus(const CorpusConfig& config, const std::optional<SplitConfig>& split, Part part,
                             std::span<const TokenShard> shards) {
  std::pair<std::size_t, std::uint64_t> begin{0, 0}, end{shards.size(), 0};
  if (split && part != Part::all) {
    const auto border = border_at(shards, split->train);
    if (part == Part::validation) end = border_at(shards, split->train + split->validation);
    (part == Part::train ? end : begin) = border;
  }
  Corpus corpus{.name = config.name, .weight = config.weight, .start = config.start, .end = config.end};
  if (!corpora_.empty()) {
    corpus.first = corpora_.back().first + corpora_.back().size;
    corpus.first_document = corpora_.back().first_document + corpora_.back().documents;
  }
  for (std::size_t s = begin.first; s < shards.size() && s <= end.first; ++s) {
    const TokenShard& shard = shards[s];
    const std::uint64_t from = s == begin.first ? begin.second : 0, to = s == end.first ? end.second : shard.size();
    if (from >= to) continue;
    const std::uint64_t first = corpus.first + corpus.size;
    runs_.push_back({.first = first,
                     .end = first + (to - from),
                     .first_document = corpus.first_document + corpus.documents,
                     .in_shard = from,
                     .shard = shards_.size() - shards.size() + s,
                     .corpus = corpora_.size()});
    corpus.size += to - from;
    corpus.documents += documents_in(shard, from, to);
    if (to - from == shard.size()) {
      corpus.src_tokens += static_cast<double>(shard.totals().source);
      corpus.tgt_tokens += static_cast<double>(shard.totals().target);
      continue;
    }
    for (std::uint64_t i = from; i < to; ++i) {
      corpus.src_tokens += shard.lengths(i).source;
      corpus.tgt_tokens += shard.lengths(i).target;
    }
  }
  corpora_.push_back(std::move(corpus));
}

TokenShards TokenShards::open(const Files& files, const DataConfig& config, const Tokenizer& tokenizer, Part part,
                              std::span<const CountedCorpus> texts, std::optional<std::size_t> only) {
  const Path folder = config.shards;
  const ShardIndex index = read_shard_index(files, folder);
  const std::string where = shard_index_path(folder).string();
  require_same(index, config, tokenizer, where);
  TokenShards shards;
  shards.fingerprint_ = index.recipe;
  shards.eos_ = narrow<std::int32_t>(tokenizer.vocabulary().eos);
  shards.has_source_ = index.corpora.front().texts.size() == 2;
  for (std::size_t c = 0; c < index.corpora.size(); ++c) {
    if (only.value_or(c) != c) continue;
    if (!texts.empty()) shards.texts_.emplace_back(files, texts[c]);
    const ShardIndex::Corpus& entry = index.corpora[c];
    const Pipeline& pipeline = shards.pipelines_.emplace_back(config.corpora[c], tokenizer, config.mode);
    if (pipeline.recipe() != entry.transforms)
      throw_error(Fault::data, where, fmt::format("transforms of {} as configured:{}", entry.name, pipeline.recipe()),
                  fmt::format("token shards made with:{}", entry.transforms), remake);
    std::vector<TokenShard> own = open_shards(files, folder, entry, pipeline);
    const std::size_t count = own.size();
    for (TokenShard& shard : own) {
      shards.is_exact_ = shards.is_exact_ && !shard.has_loss();
      shards.shards_.push_back(std::move(shard));
    }
    shards.is_exact_ = shards.is_exact_ && !pipeline.is_random();
    shards.add_corpus(config.corpora[c], config.split, part, std::span{shards.shards_}.last(count));
  }
  return shards;
}

TokenShards::Place TokenShards::place_of(std::uint64_t example) const {
  ARGOSY_CHECK(example < size(), "{} of {}", example, size());
  return in_run(*std::prev(std::ranges::upper_bound(runs_, example, {}, &Run::first)), example);
}

TokenShards::Place TokenShards::in_run(const Run& run, std::uint64_t example) const {
  return {run, shards_[run.shard], example - run.first + run.in_shard};
}

Lengths TokenShards::lengths(std::uint64_t example) const { return place_of(example).lengths(); }

bool TokenShards::starts_document(std::uint64_t example) const { return place_of(example).starts_document(); }

void TokenShards::release_pages() const {
  for (const TokenShard& shard : shards_) shard.release_pages();
}

void TokenShards::go_to(std::uint64_t example) const { use(place_of(example).run.shard); }

void TokenShards::use(std::size_t shard) const {
  // Examples are read all over the files, whose pages would add up to all of them.
  if (const std::size_t before = last_used_->exchange(shard); before != shard) shards_[before].release_pages();
}

bool TokenShards::read(std::uint64_t example, const std::optional<Draw>& draw, Example& out) const {
  const Place place = place_of(example);
  const Pipeline& pipeline = pipelines_[place.run.corpus];
  place.shard.read(place.in_shard, out);
  if (place.shard.has_places()) texts_.at(place.run.corpus).read(out);
  use(place.run.shard);
  if (!pipeline.stores_text() && !pipeline.is_random()) return false;

  // Transforms see no EOS; only pairs have random ones.
  const auto without_eos = [&](std::vector<std::int32_t>& ids) {
    if (!ids.empty() && ids.back() == eos_) ids.pop_back();
  };
  if (!pipeline.stores_text()) {
    without_eos(out.source);
    without_eos(out.target);
    if (!out.loss.empty()) out.loss.pop_back();
  }
  const Lengths longest = place.lengths();
  const bool plainly = pipeline.finish(out, draw, {has_source_ ? longest.source - 1 : 0, longest.target - 1});
  if (has_source_) out.source.push_back(eos_);
  const bool ends = has_source_ || out.target.size() < longest.target;  // a document's part may go on in the next one
  if (ends) out.target.push_back(eos_);
  if (ends && !out.loss.empty()) out.loss.push_back(out.loss.back());
  return plainly;
}

TokenShards::Document TokenShards::document(std::uint64_t number) const {
  const Run& run = *std::prev(std::ranges::upper_bound(runs_, number, {}, &Run::first_document));
  const std::uint64_t begin = shards_[run.shard].document_begin(run.in_shard, number - run.first_document);
  const std::uint64_t first = begin - run.in_shard + run.first;
  ARGOSY_CHECK(first < run.end, "document {}", number);
  const std::uint64_t end = corpora_[run.corpus].first + corpora_[run.corpus].size;
  const auto place = [&](std::uint64_t example) {
    return example < run.end ? in_run(run, example) : place_of(example);
  };
  Document document{.first = first};
  std::uint64_t next = first;
  do {
    document.ids += place(next++).lengths().target;
  } while (next < end && !place(next).starts_document());
  document.examples = next - first;
  use(run.shard);
  return document;
}

void TokenShards::require_at_most(std::int64_t positions) const {
  const auto is_longer = [&](const Lengths& each) { return std::max(each.source, each.target) > positions; };
  for (const Run& run : runs_) {
    if (!is_longer(shards_[run.shard].longest())) continue;
    for (std::uint64_t example = run.first; example < run.end; ++example) {
      const Lengths found = lengths(example);
      if (!is_longer(found)) continue;
      const Corpus& corpus = corpora_[run.corpus];
      Example made;
      read(example, std::nullopt, made);
      const bool is_source = found.source > positions;
      const Tokenizer& tokenizer = pipelines_[run.corpus].tokenizer().side(is_source ? Side::source : Side::target);
      std::vector<std::int32_t>& ids = is_source ? made.source : made.target;
      ids.resize(std::min<std::size_t>(ids.size(), 12));
      throw_error(Fault::data, fmt::format("corpus {}, pair {}", corpus.name, example - corpus.first + 1),
                  fmt::format("pairs of at most {} pieces a side, which the model has positions for", positions),
                  fmt::format("a {} of {} pieces, \"{}…\"", is_source ? "source" : "target",
                              is_source ? found.source : found.target, tokenizer.decode(ids)),
                  "raise model.max_positions, lower model.position_shift_max, or leave such pairs out: add the "
                  "transform max_length to the transforms "
                  "of this corpus, and run preprocess");
    }
  }
}

}  // namespace argosy::data
