#include "data/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "data/line_offset.hpp"
#include "data/line_reader.hpp"

namespace argosy::data {
namespace {

constexpr std::int64_t all_lines = std::numeric_limits<std::int64_t>::max();

/// Where a text can be read, and what it is called in messages.
struct TextPlace {
  Path text{}, name{};
  const CountRecord* record = nullptr;  // of one that is counted
  std::uint64_t begin = 0;              // among the texts of its side, laid end to end
};

/// Lines [first, first + lines) of a text, or of two; of one that is not counted all lines.
struct LineRange {
  TextPlace source{}, target{};
  std::int64_t first = 0, lines = all_lines;
  std::uint64_t number = 0;  // of the first line, in the corpus
};

/// The next file of a side, whose earlier ones have `begin` bytes.
TextPlace place_of(const CountedFile& file, std::uint64_t& begin) {
  TextPlace place{file.text, file.path, &file.record, begin};
  begin += file.record.size_bytes;
  return place;
}

/// A part is read with its whole line, which is read again for each part: not where that would take long.
constexpr std::uint64_t most_place_bytes = 16 * most_record_bytes;
std::optional<RecordPlace> place_of(const LineReader& reader, const TextPlace& text) {
  const std::uint64_t bytes = reader.line_bytes();
  if (bytes > most_place_bytes) return std::nullopt;
  return RecordPlace{.at = text.begin + reader.line_offset(), .bytes = narrow<std::uint32_t>(bytes)};
}

bool is_blank(std::string_view line) { return line.empty() || line == "\r"; }

/// Takes what the readers find. One object reads one task.
class RecordTaker {
 public:
  RecordTaker(const Files& files, const TextRules& rules) : files_(files), rules_(rules) {}

  void take(const LineRange& range) {
    number_ = range.number;
    const bool records = rules_.format != TextFormat::text;
    if (rules_.pairs && !records) return take_pairs(range);
    if (!records && rules_.documents != DocumentUnit::line) return take_documents(range);
    LineReader reader = reader_of(range.source, range.first, CarriageReturns::drop);
    std::string line;
    for (std::int64_t i = 0; i < range.lines && next(reader, line, range.source.record); ++i, ++number_) {
      Record record;
      if (!records)
        record.target = line;
      else if (!is_blank(line) && !parse(line, reader, record))
        continue;
      record.line = number_;
      record.target_place = place_of(reader, range.source);
      if (rules_.pairs)
        taken_.records.push_back(std::move(record));
      else
        append_parts(std::move(record), taken_.records);
    }
  }

  Records taken() && { return std::move(taken_); }

 private:
  LineReader reader_of(const TextPlace& place, std::int64_t first, CarriageReturns carriage_returns) const {
    const auto line = static_cast<std::uint64_t>(first);
    const CountRecord* const record = place.record;
    File file = files_.open(place.text);
    if (record != nullptr && file.stat().size_bytes != record->size_bytes)
      throw_changed_text(place.name, "another size");
    const std::uint64_t offset = record != nullptr ? offset_of_line(files_, place.text, *record, line) : 0;
    return LineReader{std::move(file), offset, line, rules_.invalid_utf8, carriage_returns, place.name};
  }

  /// The next line. A counted file has as many as are asked for.
  static bool next(LineReader& reader, std::string& line, const CountRecord* record) {
    if (reader.next(line)) return true;
    if (record != nullptr) throw_changed_text(reader.name(), "fewer lines");
    return false;
  }

  bool parse(const std::string& line, const LineReader& reader, Record& record) {
    const std::optional<BrokenRecord> broken = parse_record(line, rules_, record);
    if (!broken) return true;
    if (rules_.broken_records == BrokenRecords::reject)
      throw_error(Fault::data, reader.place(broken->byte), broken->wanted, broken->got,
                  "correct the record or data.corpora, or use --set data.broken_records=skip");
    ++taken_.broken;
    return false;
  }

  void take_pairs(const LineRange& range) {
    LineReader source = reader_of(range.source, range.first, CarriageReturns::drop);
    LineReader target = reader_of(range.target, range.first, CarriageReturns::drop);
    for (std::int64_t i = 0; i < range.lines; ++i, ++number_) {
      Record record;
      const bool has_source = next(source, record.source, range.source.record);
      const bool has_target = next(target, record.target, range.target.record);
      if (has_source != has_target) {
        std::uint64_t rest = 1;
        for (std::string line; (has_source ? source : target).next(line);) ++rest;
        const auto read = static_cast<std::uint64_t>(i);
        throw_unequal_lines(range.source.name, read + (has_source ? rest : 0), range.target.name,
                            read + (has_target ? rest : 0));
      }
      if (!has_source) break;
      record.line = number_;
      record.source_place = place_of(source, range.source);
      record.target_place = place_of(target, range.target);
      if (!record.source_place || !record.target_place) record.source_place = record.target_place = std::nullopt;
      taken_.records.push_back(std::move(record));
    }
  }

  /// Documents of several lines. What begins before the range is another task's; what goes on after it as well.
  void take_documents(const LineRange& range) {
    const bool by_file = rules_.documents == DocumentUnit::file;
    const bool look_back = range.first > 0;
    LineReader reader = reader_of(range.source, range.first - (look_back ? 1 : 0), CarriageReturns::keep);
    std::string line;
    Record document;
    if (look_back) {
      static_cast<void>(next(reader, line, range.source.record));
      document.starts_document = !by_file && is_blank(line);
    }
    std::uint64_t number = number_, at = 0;
    bool more = true, was_replaced = false;
    const auto finish = [&](bool ends) {
      if (document.target.empty()) return;
      document.ends_document = ends;
      if (ends && !by_file) {  // the end of its last line separates it from the next
        document.target.pop_back();
        if (document.target.ends_with('\r')) document.target.pop_back();
      }
      const std::size_t first = taken_.records.size();
      append_parts(std::exchange(document, {}), taken_.records);
      for (std::size_t i = first; i < taken_.records.size() && !was_replaced; ++i) {
        Record& part = taken_.records[i];
        part.target_place = RecordPlace{.at = at, .bytes = narrow<std::uint32_t>(part.target.size())};
        at += part.target.size();
      }
      was_replaced = false;
      document.starts_document = ends;
    };
    for (std::int64_t i = 0; i < range.lines && (more = reader.next(line)); ++i, ++number) {
      if (!by_file && is_blank(line)) {
        finish(true);
        document.starts_document = true;
        continue;
      }
      if (document.target.empty()) {
        document.line = number;
        at = range.source.begin + reader.line_offset();
      }
      was_replaced = was_replaced || reader.was_replaced();
      document.target += line;
      if (reader.was_ended() || !by_file) document.target += '\n';
    }
    if (!more && range.source.record != nullptr) throw_changed_text(range.source.name, "fewer lines");
    const bool goes_on = more && reader.next(line) && (by_file || !is_blank(line));
    finish(!goes_on);
  }

  const Files& files_;
  const TextRules& rules_;
  Records taken_;
  std::uint64_t number_ = 0;
};

/// Where to cut a text that is longer than `most`: at least one character in.
std::size_t cut_of(std::string_view text, std::size_t most) {
  const std::string_view head = text.substr(0, most);
  for (const char end : {'\n', ' '})
    if (const std::size_t at = head.rfind(end); at != std::string_view::npos) return at + 1;
  std::size_t cut = most;
  while (cut > 1 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
  return cut;
}

}  // namespace

Records read_records(const Files& files, const RecordTask& task) {
  RecordTaker taker{files, task.corpus->rules};
  const CountedCorpus& texts = *task.corpus;
  std::int64_t begin = 0;  // the file's first line, in the corpus
  std::uint64_t source_bytes = 0, target_bytes = 0;
  const std::int64_t end = task.first_line + task.lines;
  for (std::size_t f = 0; f < texts.source.size() && begin < end; ++f) {
    const CountedFile& source = texts.source[f];
    const std::int64_t lines = source.record.figures.lines;
    const std::int64_t first = std::max(task.first_line, begin), last = std::min(end, begin + lines);
    LineRange range{.source = place_of(source, source_bytes), .first = first - begin, .lines = last - first};
    range.number = static_cast<std::uint64_t>(first);
    if (!texts.target.empty()) range.target = place_of(texts.target[f], target_bytes);
    if (range.lines > 0) taker.take(range);
    begin += lines;
  }
  return std::move(taker).taken();
}

Records read_records(const Files& files, const TextRules& rules, const TextFiles& texts, const UnpackSettings& unpack) {
  RecordTaker taker{files, rules};
  for (std::size_t f = 0; f < texts.source.size(); ++f) {
    LineRange range{.source = {unpacked_text(files, texts.source[f], unpack), texts.source[f]}};
    if (!texts.target.empty()) range.target = {unpacked_text(files, texts.target[f], unpack), texts.target[f]};
    taker.take(range);
  }
  return std::move(taker).taken();
}

Example example_of(Record&& record) {
  Example example;
  if (!record.loss_on_all) {
    example.loss.assign(record.target.size(), false);
    const auto at = [&](std::size_t byte) { return example.loss.begin() + static_cast<std::ptrdiff_t>(byte); };
    for (const ByteRange& range : record.loss) std::fill(at(range.begin), at(range.end), true);
  }
  example.source_text = std::move(record.source);
  example.target_text = std::move(record.target);
  return example;
}

void append_parts(Record&& record, std::vector<Record>& parts, std::size_t most_bytes) {
  if (record.target.size() <= most_bytes) {
    parts.push_back(std::move(record));
    return;
  }
  const std::string_view text = record.target;
  const std::size_t first = parts.size();
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const std::string_view rest = text.substr(begin);
    end = begin + (rest.size() > most_bytes ? cut_of(rest, most_bytes) : rest.size());
    Record& part = parts.emplace_back();
    part.target = text.substr(begin, end - begin);
    part.loss_on_all = record.loss_on_all;
    part.line = record.line;
    part.starts_document = record.starts_document && begin == 0;
    part.ends_document = record.ends_document && end == text.size();
    part.target_place = record.target_place;
    if (part.target_place) part.target_place->part = narrow<std::uint32_t>(parts.size() - 1 - first);
    for (const ByteRange& range : record.loss)
      if (std::max(range.begin, begin) < std::min(range.end, end))
        part.loss.push_back({std::max(range.begin, begin) - begin, std::min(range.end, end) - begin});
  }
}

void throw_unequal_lines(const Path& source, std::uint64_t source_lines, const Path& target,
                         std::uint64_t target_lines) {
  throw_error(Fault::data, fmt::format("{} and {}", source.string(), target.string()),
              "equally many lines on both sides", fmt::format("{} and {}", source_lines, target_lines),
              "pair the texts line by line");
}

}  // namespace argosy::data
