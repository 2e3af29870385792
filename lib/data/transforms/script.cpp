#include "data/transforms/script.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "data/transforms/filter.hpp"
#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Script&) {
  static constexpr config::KeyText texts[] = {
      {"source", "script: names of the scripts of the source, such as Latin or Cyrillic; none: it may have any"},
      {"target", "script: names of the scripts of the target"},
      {"threshold", "script: least share of the letters of a side that are of its scripts, 0 to 1"},
  };
  return texts;
}

void validate(const Script& config, config::Problems& problems) {
  for (const auto& [pointer, names] : {std::pair{"/source", &config.source}, {"/target", &config.target}})
    for (std::size_t i = 0; i < names->size(); ++i)
      problems.require(tokenizer::script_of_name((*names)[i]).has_value(), fmt::format("{}/{}", pointer, i),
                       "the name of a script in Unicode, such as Latin or Cyrillic", (*names)[i]);
  problems.require(!config.source.empty() || !config.target.empty(), "/source",
                   "scripts of the source or of the target", "none");
  require_in(problems, "/threshold", config.threshold, 0., 1.);
}

namespace {

using ScriptCodes = std::vector<int>;

ScriptCodes codes_of(const std::vector<std::string>& names) {
  ScriptCodes codes;
  for (const std::string& name : names) codes.push_back(tokenizer::script_of_name(name).value());
  return codes;
}

std::optional<std::string> foreign_letters(std::string_view text, const ScriptCodes& scripts, double least) {
  std::int64_t own = 0, all = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = tokenizer::next_character(text, at);
    if (!tokenizer::is_letter(c) || tokenizer::is_of_any_script(c)) continue;
    ++all;
    own += std::ranges::any_of(scripts, [&](int script) { return tokenizer::is_of_script(c, script); }) ? 1 : 0;
  }
  if (scripts.empty() || static_cast<double>(own) >= least * static_cast<double>(all)) return std::nullopt;
  return fmt::format("{} of {} letters are of the scripts, at least {} of them", own, all, least);
}

}  // namespace

std::unique_ptr<const Transform> Script::make(const Materials&) const {
  const auto find = [of_source = codes_of(source), of_target = codes_of(target),
                     least = threshold](const Example& example) -> std::optional<std::string> {
    if (const auto fault = foreign_letters(example.source_text, of_source, least)) return "source: " + *fault;
    if (const auto fault = foreign_letters(example.target_text, of_target, least)) return "target: " + *fault;
    return std::nullopt;
  };
  return make_filter(type, fmt::format("{} | {} | {}", fmt::join(source, " "), fmt::join(target, " "), threshold),
                     find);
}

}  // namespace argosy::data
