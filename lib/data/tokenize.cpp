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
  bool starts_document = true;
  std::vector<Example::Lines> before{};  // that transforms read
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
    const std::int64_t before = std::min(task.first_line, task.pipeline->lines_before());
    const std::int64_t begin = task.first_line - before;
    LineReader source = reader_at(*task.source, begin), target = reader_at(*task.target, begin);
    DocumentLines document{task.pipeline->lines_before()};
    const auto read = [&](Line& line) {
      must_read(source, line.source, *task.source);
      must_read(target, line.target, *task.target);
      line.before = document.before();
      document.add(line.source, line.target);
    };
    Line of_another_shard;
    for (std::int64_t i = 0; i < before; ++i) read(of_another_shard);
    for (Line& line : lines) read(line);
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

}  // namespace

Digest digest_of_task(const ShardTask& task, const Digest& tokenizer, std::int64_t lines_per_shard) {
  Hasher hasher;
  hasher.update(fmt::format("shard 1 {} {} {} {} {}", task.first_line, task.lines, lines_per_shard,
                            static_cast<int>(task.policy), static_cast<int>(task.corpus->document_end)));
  hasher.update(task.pipeline->recipe());
  hasher.update(std::as_bytes(std::span{tokenizer.bytes}));
  for (const CountedFile* text : {task.source, task.target}) {
    if (text != nullptr) hasher.update(std::as_bytes(std::span{text->record.digest.bytes}));
  }
  return hasher.digest();
}

std::string tokenize_shard(const Files& files, const Tokenizer& tokenizer, const ShardTask& task, int threads) {
  std::vector<Line> lines = read_task(files, task);
  struct Made {
    Example example;
    Pipeline::Plan plan;
  };
  std::vector<Made> all(lines.size());
  parallel_for(lines.size(), threads, [&](std::size_t i) {
    auto& [example, plan] = all[i];
    example.source_text = std::move(lines[i].source);
    example.target_text = std::move(lines[i].target);
    example.before = std::move(lines[i].before);
    plan = task.pipeline->plan(example);
  });

  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto eos = static_cast<std::int32_t>(vocabulary.eos);
  ShardWriter writer{id_width_of(vocabulary.pieces), task.target != nullptr ? 2U : 1U};
  std::map<std::string, std::int64_t> dropped{{"empty", 0}};
  for (const auto& transform : task.pipeline->transforms()) dropped[std::string(transform->type())] = 0;
  std::int64_t unknown = 0;
  bool carried = false;  // a document's first line was left out: the next one begins it
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool starts_document = std::exchange(carried, false) || lines[i].starts_document;
    auto& [example, plan] = all[i];
    if (plan.left_out) {
      ++dropped[std::string(*plan.left_out)];
      carried = starts_document;
      continue;
    }
    unknown += plan.unknown;
    if (task.target != nullptr) example.source.push_back(eos);
    example.target.push_back(eos);
    writer.add(example.source, example.target, starts_document);
  }
  const boost::json::object note{{"dropped", boost::json::value_from(dropped)}, {"unknown", unknown}};
  return writer.bytes(tokenizer.digest(), task.recipe, boost::json::serialize(note));
}

}  // namespace argosy::data
