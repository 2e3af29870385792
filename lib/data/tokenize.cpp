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
#include "data/line_reader.hpp"
#include "data/shard_writer.hpp"

namespace argosy::data {
namespace {

constexpr std::size_t chunk_lines = 256;  // a thread's unit of work

struct Line {
  std::string source, target;
  Pieces pieces{};
  bool starts_document = true;
};

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

std::vector<Line> read_task(const Files& files, const ShardTask& task) {
  const auto reader_at = [&](const CountedFile& text, std::int64_t line) {
    const auto number = static_cast<std::uint64_t>(line);
    return LineReader{files.open(text.path), offset_of_line(files, text.path, text.record, number), number,
                      task.policy};
  };
  std::vector<Line> lines(static_cast<std::size_t>(task.lines));
  const auto must_read = [&](LineReader& reader, std::string& line, const CountedFile& text) {
    if (!reader.next(line)) throw_changed_text(text.path, "fewer lines");
  };
  if (task.target != nullptr) {
    LineReader source = reader_at(*task.source, task.first_line), target = reader_at(*task.target, task.first_line);
    for (Line& line : lines) {
      must_read(source, line.source, *task.source);
      must_read(target, line.target, *task.target);
    }
    return lines;
  }
  // Whether the first line begins a document shows in the line before it.
  const bool by_lines = task.corpus->document_end == DocumentEnd::line;
  const bool look_back = !by_lines && task.first_line > 0;
  LineReader reader = reader_at(*task.source, task.first_line - (look_back ? 1 : 0));
  bool begins = true;
  if (look_back) {
    std::string before;
    must_read(reader, before, *task.source);
    begins = before.empty();
  }
  for (Line& line : lines) {
    must_read(reader, line.target, *task.source);
    line.starts_document = by_lines || begins;
    begins = line.target.empty();
  }
  return lines;
}

/// Transforms its pieces. The reason why it is left out, if it is; `number` counts the lines of the corpus.
std::optional<std::string_view> refusal(Pieces& pieces, bool has_source, const Transforms& transforms,
                                        std::uint64_t number) {
  const auto is_empty = [&] { return pieces.target.empty() || (has_source && pieces.source.empty()); };
  if (is_empty()) return "empty";
  const Transform* const refused = apply(transforms, pieces, {.example = number});
  if (refused != nullptr) return refused->type();
  return is_empty() ? std::optional<std::string_view>("empty") : std::nullopt;
}

}  // namespace

Digest digest_of_task(const ShardTask& task, const Digest& tokenizer, std::int64_t lines_per_shard) {
  Hasher hasher;
  hasher.update(fmt::format("shard 1 {} {} {} {} {}", task.first_line, task.lines, lines_per_shard,
                            static_cast<int>(task.policy), static_cast<int>(task.corpus->document_end)));
  for (const auto& transform : make_transforms(task.corpus->transforms)) hasher.update(" " + transform->recipe());
  hasher.update(std::as_bytes(std::span{tokenizer.bytes}));
  for (const CountedFile* text : {task.source, task.target}) {
    if (text != nullptr) hasher.update(std::as_bytes(std::span{text->record.digest.bytes}));
  }
  return hasher.digest();
}

std::string tokenize_shard(const Files& files, const Tokenizer& tokenizer, const ShardTask& task, int threads) {
  std::vector<Line> lines = read_task(files, task);
  parallel_for(lines.size(), threads, [&](std::size_t i) {
    Line& line = lines[i];
    if (task.target != nullptr) line.pieces.source = tokenizer.encode(line.source, Side::source);
    line.pieces.target = tokenizer.encode(line.target);
  });

  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto eos = static_cast<std::int32_t>(vocabulary.eos),
             unk = static_cast<std::int32_t>(vocabulary.unk.value_or(-1));
  ShardWriter writer{id_width_of(vocabulary.pieces), task.target != nullptr ? 2U : 1U};
  std::map<std::string, std::int64_t> dropped{{"empty", 0}};
  const Transforms transforms = make_transforms(task.corpus->transforms);
  for (const auto& transform : transforms) dropped[std::string(transform->type())] = 0;
  std::int64_t unknown = 0;
  bool carried = false;  // a document's first line was left out: the next one begins it
  auto number = static_cast<std::uint64_t>(task.first_line);
  for (Line& line : lines) {
    const bool starts_document = std::exchange(carried, false) || line.starts_document;
    auto& [source, target] = line.pieces;
    if (const auto reason = refusal(line.pieces, task.target != nullptr, transforms, number++)) {
      ++dropped[std::string(*reason)];
      carried = starts_document;
      continue;
    }
    unknown += std::count(source.begin(), source.end(), unk) + std::count(target.begin(), target.end(), unk);
    if (task.target != nullptr) source.push_back(eos);
    target.push_back(eos);
    writer.add(source, target, starts_document);
  }
  const boost::json::object note{{"dropped", boost::json::value_from(dropped)}, {"unknown", unknown}};
  return writer.bytes(tokenizer.digest(), task.recipe, boost::json::serialize(note));
}

}  // namespace argosy::data
