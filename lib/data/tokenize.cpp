#include "data/tokenize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "data/placed_texts.hpp"
#include "data/shard_writer.hpp"

namespace argosy::data {
namespace {

constexpr std::size_t chunk_lines = 256;  // a thread's unit of work

/// Calls body(i) for i in [0, count) on `threads` threads, in chunks; rethrows the first exception.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t begin = next.fetch_add(chunk_lines); begin < count; begin = next.fetch_add(chunk_lines)) {
        for (std::size_t i = begin; i < std::min(begin + chunk_lines, count); ++i) body(i);
      }
    } catch (...) {
      const std::lock_guard lock{mutex};
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

/// Records of a task, and of pairs the lines before each in its document, which ends at an empty line and with its
/// file: as many as the transforms read, also of lines before the task's.
struct ReadTask {
  Records read;
  std::vector<std::vector<Example::Lines>> before{};
  std::vector<Places> places{};  // of the records and the lines before them; none where one's is not known
};

ReadTask read_task(const Files& files, const ShardTask& task) {
  const std::int64_t wanted = task.text.corpus->rules.pairs ? task.pipeline->lines_before() : 0;
  RecordTask text = task.text;
  const std::int64_t earlier = std::min(wanted, text.first_line);
  text.first_line -= earlier;
  text.lines += earlier;
  ReadTask made{read_records(files, text)};
  std::vector<Record>& records = made.read.records;
  std::vector<std::uint64_t> file_ends;
  file_ends.reserve(text.corpus->source.size());
  std::uint64_t end = 0;
  for (const CountedFile& file : text.corpus->source)
    file_ends.push_back(end += static_cast<std::uint64_t>(file.record.figures.lines));
  const auto file_of = [&](const Record& record) { return std::ranges::upper_bound(file_ends, record.line); };
  DocumentLines document{wanted};
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (wanted > 0 && i > 0 && file_of(records[i]) != file_of(records[i - 1])) document = DocumentLines{wanted};
    made.before.push_back(document.before());
    if (made.places.size() == i && task.pipeline->stores_places()) {
      const std::size_t own = made.before.back().size() + 1;
      if (std::optional<Places> places = places_of(std::span{records}.subspan(i + 1 - own, own)))
        made.places.push_back(*std::move(places));
    }
    document.add(records[i].source, records[i].target);
  }
  const auto first = std::ranges::find_if(
      records, [&](const Record& record) { return record.line >= static_cast<std::uint64_t>(task.text.first_line); });
  if (made.places.size() < records.size()) made.places.clear();
  made.before.erase(made.before.begin(), made.before.begin() + (first - records.begin()));
  if (!made.places.empty()) made.places.erase(made.places.begin(), made.places.begin() + (first - records.begin()));
  if (earlier > 0) records.erase(records.begin(), first);
  return made;
}

}  // namespace

Digest digest_of_task(const ShardTask& task, const Digest& tokenizer, std::int64_t lines_per_shard) {
  const RecordTask& text = task.text;
  Hasher hasher;
  hasher.update(fmt::format("shard 1 {} {} {} {} 0", text.first_line, text.lines, lines_per_shard,
                            static_cast<int>(text.corpus->rules.invalid_utf8)));
  hasher.update(recipe_of(text.corpus->rules));
  hasher.update(task.pipeline->recipe());
  hasher.update(std::as_bytes(std::span{tokenizer.bytes}));
  // The files that hold the task's lines.
  std::int64_t begin = 0;
  for (std::size_t f = 0; f < text.corpus->source.size(); ++f) {
    const std::int64_t lines = text.corpus->source[f].record.figures.lines;
    if (begin < text.first_line + text.lines && begin + lines > text.first_line - task.pipeline->lines_before()) {
      if (begin > 0) hasher.update(fmt::format(" from {}", begin));
      hasher.update(std::as_bytes(std::span{text.corpus->source[f].record.digest.bytes}));
      if (!text.corpus->target.empty())
        hasher.update(std::as_bytes(std::span{text.corpus->target[f].record.digest.bytes}));
    }
    begin += lines;
  }
  return hasher.digest();
}

std::string tokenize_shard(const Files& files, const ShardTask& task, int threads) {
  const bool pairs = task.text.corpus->rules.pairs;
  auto [read, before, places] = read_task(files, task);
  struct Made {
    Example example;
    Pipeline::Plan plan;
  };
  std::vector<Made> all(read.records.size());
  parallel_for(all.size(), threads, [&, &records = read.records, &lines_before = before](std::size_t i) {
    auto& [example, plan] = all[i];
    example = example_of(std::move(records[i]));
    example.before = std::move(lines_before[i]);
    plan = task.pipeline->plan(example);
  });

  const Tokenizer& tokenizer = task.pipeline->tokenizer();
  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto eos = static_cast<std::int32_t>(vocabulary.eos);
  const bool as_text = task.pipeline->stores_text();
  ShardWriter writer{as_text ? 1 : id_width_of(vocabulary.pieces), pairs ? 2U : 1U, !places.empty()};
  std::map<std::string, std::int64_t> dropped{{"empty", 0}};
  if (task.text.corpus->rules.format != TextFormat::text) dropped["broken"] = read.broken;
  for (const auto& transform : task.pipeline->transforms()) dropped[std::string(transform->type())] = 0;
  std::int64_t unknown = 0, src_tokens = 0, tgt_tokens = 0;
  bool carried = false;  // a document's first part was left out: the next one begins it
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Record& record = read.records[i];
    const bool starts_document = std::exchange(carried, false) || record.starts_document;
    auto& [example, plan] = all[i];
    const bool only_ends = record.ends_document && !starts_document && plan.left_out == "empty";
    if (plan.left_out && !only_ends) {
      ++dropped[std::string(*plan.left_out)];
      carried = starts_document && !record.ends_document;
      continue;
    }
    unknown += plan.unknown;
    const std::uint32_t end = record.ends_document ? 1 : 0;  // EOS ends each side of a pair, and each document
    src_tokens += pairs ? std::int64_t{plan.plain.source} + end : 0;
    tgt_tokens += std::int64_t{plan.plain.target} + end;
    if (!as_text && record.ends_document) {
      if (pairs) example.source.push_back(eos);
      example.target.push_back(eos);
      if (!example.loss.empty()) example.loss.push_back(example.loss.back());
    }
    if (!places.empty()) {
      example.source_text = std::move(places[i].source);
      example.target_text = std::move(places[i].target);
    }
    writer.add(example, {pairs ? plan.longest.source + end : 0, plan.longest.target + end}, starts_document);
  }
  const boost::json::object note{{"dropped", boost::json::value_from(dropped)},
                                 {"unknown", unknown},
                                 {"src_tokens", src_tokens},
                                 {"tgt_tokens", tgt_tokens}};
  return writer.bytes(tokenizer.digest(), task.recipe, boost::json::serialize(note));
}

}  // namespace argosy::data
