#include "data/text_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "data/batcher.hpp"
#include "data/line_reader.hpp"
#include "data/transforms/draws.hpp"
#include "data/transforms/subword.hpp"

namespace argosy::data {
namespace {

std::vector<std::int32_t> encode_line(const Tokenizer& tokenizer, std::string_view line, Side side,
                                      const std::vector<std::int32_t>& prefix) {
  std::vector<std::int32_t> ids = tokenizer.encode(line, side);
  ids.insert(ids.begin(), prefix.begin(), prefix.end());
  ids.push_back(static_cast<std::int32_t>(tokenizer.vocabulary().eos));
  return ids;
}

}  // namespace

std::vector<std::string> read_lines(const Files& files, const Path& path, InvalidUtf8 policy) {
  LineReader reader{files.open(path), 0, 0, policy};
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(std::move(line));
  if (lines.empty())
    throw_error(Fault::data, path.string(), "a text with lines", "an empty file", "correct the path or the file");
  return lines;
}

ParallelText read_parallel_text(const Files& files, const TextRules& rules, const TextFiles& texts,
                                const UnpackSettings& unpack) {
  ParallelText text;
  for (Record& record : read_records(files, rules, texts, unpack).records) {
    text.source.push_back(std::move(record.source));
    text.target.push_back(std::move(record.target));
  }
  if (text.source.empty())
    throw_error(Fault::data, texts.source.at(0).string(), "a text with lines", "an empty file",
                "correct the path or the file");
  return text;
}

std::vector<Batch> batches_of(const Tokenizer& tokenizer, const ParallelText& text, BatchUnit unit,
                              std::int64_t micro_size, int rank, int world) {
  ARGOSY_CHECK(text.target.empty() || text.source.size() == text.target.size(), "{} and {}", text.source.size(),
               text.target.size());
  struct Line {
    std::vector<std::int32_t> source, target;
    std::uint64_t number = 0;
  };
  const auto before = [&](Side side, const std::vector<std::string>& pieces) {
    return ids_of_pieces(tokenizer.side(side), pieces, Prefix::type);
  };
  const std::vector<std::int32_t> before_source = before(Side::source, text.prefixes.source),
                                  before_target = before(Side::target, text.prefixes.target);
  std::vector<Line> lines;
  for (std::size_t i = 0; i < text.source.size(); ++i) {
    lines.push_back({encode_line(tokenizer, text.source[i], Side::source, before_source), {}, i});
    if (!text.target.empty()) lines.back().target = encode_line(tokenizer, text.target[i], Side::target, before_target);
  }
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    const auto key = [](const Line& line) {
      return std::tuple{std::max(line.source.size(), line.target.size()), line.target.size(), line.number};
    };
    return key(a) < key(b);
  });

  std::vector<Batch> batches;
  int number = 0;
  for (std::size_t begin = 0; begin < lines.size(); ++number) {
    std::size_t end = begin, source_width = 0, target_width = 0;
    for (; end < lines.size(); ++end) {
      const std::size_t source = std::max(source_width, lines[end].source.size()),
                        target = std::max(target_width, lines[end].target.size());
      const std::size_t rows = end + 1 - begin;
      const std::size_t size = unit == BatchUnit::examples ? rows : rows * (source + target);
      if (end > begin && size > static_cast<std::size_t>(micro_size)) break;
      source_width = source;
      target_width = target;
    }
    if (number % world == rank) {
      std::vector<PairIds> examples;
      for (std::size_t i = begin; i < end; ++i) examples.push_back({lines[i].source, lines[i].target, lines[i].number});
      batches.push_back(batch_of_pairs(examples, tokenizer.vocabulary()));
    }
    begin = end;
  }
  return batches;
}

std::vector<Batch> lm_batches_of(const Tokenizer& tokenizer, const std::vector<Record>& records,
                                 std::int64_t sequence_length, std::int64_t rows, int rank, int world) {
  std::vector<DocumentPart> documents;
  const auto eos = narrow<std::int32_t>(tokenizer.vocabulary().eos);
  const std::unique_ptr<const Transform> tokenize = Subword{}.make({.tokenizer = tokenizer, .languages = {}});
  bool begins = true;
  for (const Record& record : records) {
    begins = begins || record.starts_document;
    Example example = example_of(Record{record});
    static_cast<void>(tokenize->apply(example, nullptr));
    std::vector<std::int32_t>& ids = example.target;
    std::vector<bool>& loss = example.loss;
    if (!ids.empty() && std::exchange(begins, false)) documents.emplace_back();
    if (begins) continue;  // nothing of the document yet
    if (record.ends_document) {
      ids.push_back(eos);
      if (!loss.empty()) loss.push_back(loss.back());
    }
    DocumentPart& document = documents.back();
    if (!loss.empty() || !document.loss.empty()) {
      document.loss.resize(document.ids.size(), true);
      loss.resize(ids.size(), true);
      document.loss.insert(document.loss.end(), loss.begin(), loss.end());
    }
    document.ids.insert(document.ids.end(), ids.begin(), ids.end());
    document.size = std::ssize(document.ids);
  }
  std::vector<std::int64_t> positions;
  positions.reserve(documents.size());
  for (const DocumentPart& document : documents) positions.push_back(document.size + 1);
  const std::vector<LmRow> planned = plan_packed_rows(positions, sequence_length, DocumentCut::split);

  std::vector<Batch> batches;
  const auto step = static_cast<std::size_t>(rows);
  for (std::size_t begin = 0; begin < planned.size(); begin += step) {
    if (static_cast<int>(begin / step % static_cast<std::size_t>(world)) != rank) continue;
    const std::size_t end = std::min(begin + step, planned.size());
    LmBatcher batcher{tokenizer.vocabulary(), static_cast<std::int64_t>(end - begin), sequence_length};
    for (std::size_t r = begin; r < end; ++r)
      add_row(batcher, planned[r], [&](std::uint64_t place, std::int64_t, std::int64_t) { return documents[place]; });
    batches.push_back(batcher.take());
  }
  return batches;
}

std::int64_t label_bytes(const Tokenizer& tokenizer, const Batch& batch) {
  const std::int64_t eos = tokenizer.vocabulary().eos;
  std::int64_t bytes = 0;
  std::vector<std::int32_t> ids;  // a label after another, behind the id that the model sees before them
  const auto end = [&] {
    if (ids.empty()) return;
    // A piece loses the space that it begins with where it begins a text, so the id before them stays.
    bytes += std::ssize(tokenizer.decode(ids)) - std::ssize(tokenizer.decode(std::span{ids}.first(1)));
    ids.clear();
  };
  for (std::int64_t i = 0; i < std::ssize(batch.target_labels); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t label = batch.target_labels[at];
    if (label == no_label || label == eos || i % batch.target_width == 0) end();
    if (label == eos) ++bytes;
    if (label == no_label || label == eos) continue;
    if (ids.empty()) ids.push_back(narrow<std::int32_t>(batch.target_input[at]));
    ids.push_back(narrow<std::int32_t>(label));
  }
  end();
  return bytes;
}

}  // namespace argosy::data
