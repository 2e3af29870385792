#include <boost/json/parse.hpp>
#include <boost/json/value_from.hpp>

#include "config/config.hpp"
#include "telemetry/sinks.hpp"

namespace argosy::telemetry {
namespace {

/// nullopt: the line is not an object with a step.
std::optional<std::int64_t> step_of(std::string_view text) {
  boost::json::error_code error;
  const boost::json::value line = boost::json::parse(text, error);
  const auto* object = error ? nullptr : line.if_object();
  const auto* step = object != nullptr ? object->if_contains("step") : nullptr;
  return step != nullptr && step->is_int64() ? std::optional{step->get_int64()} : std::nullopt;
}

struct Kept {
  std::string text;
  bool is_front = true;            // the text is a prefix of the file
  std::vector<std::size_t> bad{};  // numbers of lines without a step, from 1
};

/// The complete lines, without those of steps after `last_step`.
Kept kept_of(std::string_view text, std::int64_t last_step) {
  Kept kept;
  std::size_t number = 0;
  bool removed = false;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    ++number;
    const std::optional<std::int64_t> step = step_of(text.substr(begin, end - begin));
    if (step && *step > last_step) {
      removed = true;
      continue;
    }
    if (!step) kept.bad.push_back(number);
    if (removed) kept.is_front = false;
    kept.text += text.substr(begin, end + 1 - begin);
  }
  return kept;
}

void warn_of(const std::vector<std::size_t>& bad, const Path& path, const Log& log) {
  constexpr std::size_t most_named = 5;
  if (bad.empty()) return;
  std::string numbers;
  for (std::size_t i = 0; i < bad.size() && i < most_named; ++i)
    numbers += fmt::format("{}{}", i == 0 ? "" : ", ", bad[i]);
  if (bad.size() > most_named) numbers += fmt::format(" and {} more", bad.size() - most_named);
  log.warn("{} line {}: the text is not a JSON object with a valid step, and stays unchanged", path.string(), numbers);
}

}  // namespace

JsonLines::JsonLines(const SinkSetup& setup) {
  const Files own = setup.files.own();
  file_ = own.append(setup.path);
  const std::uint64_t size_bytes = file_.stat().size_bytes;
  if (size_bytes == 0) return;
  Kept kept;
  {
    const Mapping mapping = own.map(setup.path);
    const Bytes bytes = mapping.bytes();
    kept = kept_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, setup.resumed_step);
  }
  warn_of(kept.bad, setup.path, setup.log);
  if (kept.text.size() == size_bytes) return;
  if (kept.is_front) {
    file_.truncate(kept.text.size());
  } else {
    setup.files.write_atomically(setup.path, kept.text);
    file_ = own.append(setup.path);
  }
}

void JsonLines::validation(const ValidationRecord& record) {
  boost::json::object figures;
  for (const Figure& figure : figures_of(record)) figures[figure.name] = figure.value;
  boost::json::object line{{"step", record.step}, {"validation", record.set}, {"figures", std::move(figures)}};
  if (!record.languages.empty()) line["languages"] = boost::json::value_from(record.languages);
  if (!record.signatures.empty()) line["signatures"] = boost::json::value_from(record.signatures);
  if (!record.samples.empty()) {
    boost::json::array samples;
    samples.reserve(record.samples.size());
    for (const auto& [source, reference, translation] : record.samples)
      samples.push_back({{"source", source}, {"reference", reference}, {"translation", translation}});
    line["samples"] = std::move(samples);
  }
  append(line);
}

void JsonLines::append(const boost::json::object& line) {
  file_.append(as_bytes(std::string_view{config::text_of(line, false) + "\n"}));
}

}  // namespace argosy::telemetry
