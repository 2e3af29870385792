#include "data/tokenize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
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
  std::vector<std::int32_t> source_ids, target_ids;
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
    if (!reader.next(line)) {
      throw Error{Fault::data,
                  {.wanted = "the text as it was counted",
                   .got = "fewer lines",
                   .where = text.path.string(),
                   .remedy = "run again"}};
    }
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

/// The reason why a line is left out, if any.
const char* refusal(const Line& line, const ShardTask& task) {
  if (line.target_ids.empty() || (task.target != nullptr && line.source_ids.empty())) return "empty";
  for (const TransformConfig& transform : task.corpus->transforms) {
    switch (transform.type) {
      case TransformType::max_length:
        if (static_cast<std::int64_t>(line.source_ids.size()) > transform.source ||
            static_cast<std::int64_t>(line.target_ids.size()) > transform.target)
          return "max_length";
        break;
    }
  }
  return nullptr;
}

}  // namespace

Digest digest_of_task(const ShardTask& task, const Digest& tokenizer, std::int64_t lines_per_shard) {
  Hasher hasher;
  hasher.update(fmt::format("shard 1 {} {} {} {} {}", task.first_line, task.lines, lines_per_shard,
                            static_cast<int>(task.policy), static_cast<int>(task.corpus->document_end)));
  for (const TransformConfig& transform : task.corpus->transforms) {
    hasher.update(fmt::format(" {} {} {}", static_cast<int>(transform.type), transform.source, transform.target));
  }
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
    if (task.target != nullptr) line.source_ids = tokenizer.encode(line.source);
    line.target_ids = tokenizer.encode(line.target);
  });

  const spec::Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto eos = static_cast<std::int32_t>(vocabulary.eos), unk = static_cast<std::int32_t>(vocabulary.unk);
  ShardWriter writer{id_width_of(vocabulary.pieces), task.target != nullptr ? 2U : 1U};
  std::map<std::string, std::int64_t> dropped{{"empty", 0}};
  for (const TransformConfig& transform : task.corpus->transforms) {
    if (transform.type == TransformType::max_length) dropped["max_length"] = 0;
  }
  std::int64_t unknown = 0;
  bool carried = false;  // a document's first line was left out: the next one begins it
  for (Line& line : lines) {
    const bool starts_document = std::exchange(carried, false) || line.starts_document;
    if (const char* reason = refusal(line, task)) {
      ++dropped[reason];
      carried = starts_document;
      continue;
    }
    unknown += std::count(line.source_ids.begin(), line.source_ids.end(), unk) +
               std::count(line.target_ids.begin(), line.target_ids.end(), unk);
    if (task.target != nullptr) line.source_ids.push_back(eos);
    line.target_ids.push_back(eos);
    writer.add(line.source_ids, line.target_ids, starts_document);
  }
  const boost::json::object note{{"dropped", boost::json::value_from(dropped)}, {"unknown", unknown}};
  return writer.bytes(tokenizer.digest(), task.recipe, boost::json::serialize(note));
}

}  // namespace argosy::data
