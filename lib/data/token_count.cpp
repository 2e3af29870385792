#include "data/token_count.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "comm/message.hpp"
#include "core/error.hpp"
#include "data/records.hpp"
#include "data/transforms/subword.hpp"

namespace argosy::data {

BOOST_DESCRIBE_STRUCT(SideTokens, (), (tokens, longest, lengths))
BOOST_DESCRIBE_STRUCT(TokenCount, (), (examples, empty, broken, unknown, source, target))

namespace {

constexpr std::int64_t lines_per_task = 4096;

void add_length(SideTokens& side, std::size_t ids) {
  const auto length = static_cast<std::int64_t>(ids);
  const auto bin = static_cast<std::size_t>(std::bit_width(ids)) - 1;
  if (side.lengths.size() <= bin) side.lengths.resize(bin + 1);
  side.tokens += length;
  side.longest = std::max(side.longest, length);
  ++side.lengths[bin];
}

void add(SideTokens& sum, const SideTokens& other) {
  sum.tokens += other.tokens;
  sum.longest = std::max(sum.longest, other.longest);
  sum.lengths.resize(std::max(sum.lengths.size(), other.lengths.size()));
  for (std::size_t k = 0; k < other.lengths.size(); ++k) sum.lengths[k] += other.lengths[k];
}

void add(TokenCount& sum, const TokenCount& other) {
  sum.examples += other.examples;
  sum.empty += other.empty;
  sum.broken += other.broken;
  sum.unknown += other.unknown;
  add(sum.source, other.source);
  add(sum.target, other.target);
}

void add_records(TokenCount& count, Records&& read, bool pairs, const Tokenizer& tokenizer) {
  const std::unique_ptr<const Transform> tokenize = Subword{}.make({.tokenizer = tokenizer, .languages = {}});
  const auto unknown_in = [&](Side side, const std::vector<std::int32_t>& ids) {
    const std::optional<std::int64_t> unknown = tokenizer.side(side).unknown();
    return unknown ? std::ranges::count(ids, *unknown) : 0;
  };
  count.broken += read.broken;
  for (Record& record : read.records) {
    const std::size_t ends = record.ends_document ? 1 : 0;
    Example example = example_of(std::move(record));
    static_cast<void>(tokenize->apply(example, nullptr));
    const std::vector<std::int32_t>&source = example.source, &target = example.target;
    if (target.empty() || (pairs && source.empty())) {
      ++count.empty;
      continue;
    }
    ++count.examples;
    count.unknown += unknown_in(Side::target, target) + unknown_in(Side::source, source);
    if (pairs) add_length(count.source, source.size() + 1);
    add_length(count.target, target.size() + ends);
  }
}

/// Names what was counted.
std::string cache_name(const CountedCorpus& corpus, const Tokenizer& tokenizer) {
  Hasher hasher;
  hasher.update(fmt::format("tokens 1 {} {}", boost::describe::enum_to_string(corpus.rules.invalid_utf8, ""),
                            corpus.rules.pairs));
  hasher.update(recipe_of(corpus.rules));
  hasher.update(std::as_bytes(std::span{tokenizer.digest().bytes}));
  for (const auto* side : {&corpus.source, &corpus.target}) {
    hasher.update(fmt::format(" {}", side->size()));
    for (const CountedFile& file : *side) hasher.update(std::as_bytes(std::span{file.record.digest.bytes}));
  }
  return fmt::format("tokens-{}.json", hasher.digest().hex());
}

std::string text_of(const TokenCount& count) {
  const std::string text = comm::to_message(count);
  return digest_of(text).hex() + "\n" + text + "\n";
}

std::optional<TokenCount> find_count(const Files& files, const Path& path) {
  if (!files.exists(path)) return std::nullopt;
  const std::string text = files.read_text(path);
  const std::size_t line = text.find('\n');
  if (line == std::string::npos || !text.ends_with('\n')) return std::nullopt;
  const std::string message = text.substr(line + 1, text.size() - line - 2);
  if (digest_of(message).hex() != text.substr(0, line)) return std::nullopt;  // damaged: only time is lost
  return comm::from_message<TokenCount>(message);
}

/// **Collective.** Tasks of the corpus go to the ranks in turn.
TokenCount count_corpus(const comm::Communicator& world, const Files& files, const CountedCorpus& corpus,
                        const Tokenizer& tokenizer) {
  TokenCount mine;
  comm::agree(world, [&] {
    for (std::int64_t task = world.rank(); task * lines_per_task < corpus.lines(); task += world.size()) {
      const std::int64_t first = task * lines_per_task;
      const RecordTask lines{&corpus, first, std::min(lines_per_task, corpus.lines() - first)};
      add_records(mine, read_records(files, lines), corpus.rules.pairs, tokenizer);
    }
  });
  TokenCount all;
  for (const std::string& text : world.all_gather(comm::to_message(mine)))
    add(all, comm::from_message<TokenCount>(text));
  return all;
}

}  // namespace

std::vector<TokenCount> count_tokens(const comm::Communicator& world, const Files& files, const Log& log,
                                     std::span<const CountedCorpus> corpora, const Tokenizer& tokenizers,
                                     const Path& cache) {
  if (corpora.empty())
    throw_error(Fault::usage, "--tokenizer", "files", "standard input", "write the text to a file to count its tokens");
  std::vector<TokenCount> counts;
  for (const CountedCorpus& corpus : corpora) {
    const Tokenizer tokenizer = tokenizers.of(corpus.languages);
    const Path path = cache / cache_name(corpus, tokenizer);
    std::string known;
    comm::at_root(world, [&] {
      try {
        if (const std::optional<TokenCount> found = find_count(files, path)) known = comm::to_message(*found);
      } catch (const Error& error) {
        log.warn("cached token counts are not used: {}", error.what());
      }
    });
    known = world.broadcast(std::move(known));
    if (!known.empty()) {
      counts.push_back(comm::from_message<TokenCount>(known));
      continue;
    }
    counts.push_back(count_corpus(world, files, corpus, tokenizer));
    comm::at_root(world, [&] {
      try {
        files.make_folders(cache);
        files.write_atomically(path, text_of(counts.back()));
      } catch (const Error& error) {
        log.warn("token counts are not kept for the next call: {}", error.what());
      }
    });
  }
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (world.rank() == 0 && counts[c].examples == 0)
      log.warn("{} has no tokens; preprocess will refuse it", corpora[c].source.front().path.string());
  return counts;
}

boost::json::object figures_of(const TokenCount& count, bool pairs) {
  boost::json::object lengths{{"target", boost::json::value_from(count.target.lengths)}};
  if (pairs) lengths["source"] = boost::json::value_from(count.source.lengths);
  return {{"examples", count.examples},
          {"dropped", {{"empty", count.empty}, {"broken", count.broken}}},
          {"src_tokens", count.source.tokens},
          {"tgt_tokens", count.target.tokens},
          {"unknown", count.unknown},
          {"longest_source", count.source.longest},
          {"longest_target", count.target.longest},
          {"lengths", std::move(lengths)}};
}

std::string token_table(std::span<const std::string> names, std::span<const TokenCount> counts) {
  constexpr const char* row = "{:>12} {:>14} {:>14} {:>12} {:>9}  {}\n";
  std::string table =
      fmt::format(fmt::runtime(row), "examples", "src_tokens", "tgt_tokens", "unknown", "longest", "corpus");
  std::size_t bins = 0;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    const TokenCount& count = counts[c];
    table += fmt::format(fmt::runtime(row), count.examples, count.source.tokens, count.target.tokens, count.unknown,
                         std::max(count.source.longest, count.target.longest), names[c]);
    bins = std::max({bins, count.source.lengths.size(), count.target.lengths.size()});
  }
  const auto line_of = [&](const auto& number, const std::string& name) {
    std::string line;
    for (std::size_t k = 0; k < bins; ++k) line += fmt::format("{:>10} ", number(k));
    return line + " " + name + "\n";
  };
  table += line_of([](std::size_t k) { return std::uint64_t{2} << k; }, "examples with fewer tokens than this");
  for (std::size_t c = 0; c < counts.size(); ++c) {
    for (const auto& [side, name] : {std::pair{&counts[c].source, " source"}, {&counts[c].target, " target"}}) {
      if (side->lengths.empty()) continue;
      table += line_of([&, lengths = &side->lengths](std::size_t k) { return k < lengths->size() ? (*lengths)[k] : 0; },
                       names[c] + name);
    }
  }
  return table;
}

}  // namespace argosy::data
