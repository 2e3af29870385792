#include "data/placed_texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "data/line_offset.hpp"
#include "data/records.hpp"

namespace argosy::data {
namespace {

void append(const RecordPlace& place, std::string& to) {
  to.append(reinterpret_cast<const char*>(&place), sizeof place);
}

std::vector<RecordPlace> places_in(std::string_view bytes) {
  std::vector<RecordPlace> places(bytes.size() / sizeof(RecordPlace));
  if (!places.empty()) std::memcpy(places.data(), bytes.data(), places.size() * sizeof(RecordPlace));
  return places;
}

}  // namespace

std::optional<Places> places_of(std::span<const Record> records) {
  Places places;
  for (const Record& record : records) {
    if (!record.target_place) return std::nullopt;
    if (record.source_place) append(*record.source_place, places.source);
    append(*record.target_place, places.target);
  }
  return places;
}

PlacedTexts::PlacedTexts(const Files& files, const CountedCorpus& corpus)
    : rules_(corpus.rules), source_(map(files, corpus.source)), target_(map(files, corpus.target)) {}

std::vector<PlacedTexts::Text> PlacedTexts::map(const Files& files, std::span<const CountedFile> side) {
  std::vector<Text> texts;
  std::uint64_t begin = 0;
  for (const CountedFile& file : side) {
    Text& text = texts.emplace_back(Text{file.path, files.map(file.text), begin});
    if (text.mapping.bytes().size() != file.record.size_bytes) throw_changed_text(file.path, "another size");
    begin += file.record.size_bytes;
  }
  return texts;
}

std::string PlacedTexts::read(const std::vector<Text>& side, const RecordPlace& place) const {
  const Text& text = *std::prev(std::ranges::upper_bound(side, place.at, {}, &Text::begin));
  const Bytes bytes = text.mapping.bytes();
  const std::uint64_t at = place.at - text.begin;
  if (at > bytes.size() || place.bytes > bytes.size() - at) throw_changed_text(text.name, "other lines");
  std::string found{reinterpret_cast<const char*>(bytes.data()) + at, place.bytes};
  text.mapping.release_pages(bytes.subspan(at, place.bytes));  // records are read all over the files
  if (!first_invalid_utf8(found)) return found;
  if (rules_.invalid_utf8 == InvalidUtf8::reject) {
    const auto lines = std::ranges::count(bytes.first(at), std::byte{'\n'});
    throw_changed_text(text.name, fmt::format("invalid UTF-8 in line {}", lines + 1));
  }
  return replace_invalid_utf8(found);
}

Record PlacedTexts::read(const RecordPlace* source, const RecordPlace& target) const {
  Record record;
  std::string text = read(target_.empty() ? source_ : target_, target);
  if (rules_.format == TextFormat::text) {
    record.target = std::move(text);
    if (source != nullptr) record.source = read(source_, *source);
  } else if (!text.empty() && parse_record(text, rules_, record)) {
    throw_changed_text(source_.front().name, "other records");
  }
  if (rules_.pairs) return record;
  std::vector<Record> parts;
  append_parts(std::move(record), parts);
  if (target.part >= parts.size()) throw_changed_text(source_.front().name, "other records");
  return std::move(parts[target.part]);
}

void PlacedTexts::read(Example& example) const {
  const std::vector<RecordPlace> sources = places_in(example.source_text), targets = places_in(example.target_text);
  ARGOSY_CHECK(!targets.empty() && (sources.empty() || sources.size() == targets.size()), "{} and {} places",
               sources.size(), targets.size());
  const auto record = [&](std::size_t i) { return read(sources.empty() ? nullptr : &sources[i], targets[i]); };
  std::vector<Example::Lines> before;
  for (std::size_t i = 0; i + 1 < targets.size(); ++i) {
    Record line = record(i);
    before.push_back({std::move(line.source), std::move(line.target)});
  }
  example = example_of(record(targets.size() - 1));
  example.before = std::move(before);
}

}  // namespace argosy::data
