#include "data/text_config.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const FieldsConfig&) {
  static constexpr config::KeyText texts[] = {
      {"source", "where a record has its source; default: /source, or column 1 of tsv"},
      {"target", "where a record has its target; default: /target, or column 2 of tsv"},
      {"text", "language model: where a record has its text; default: /text, or column 1 of tsv"},
      {"messages",
       "language model: where a record of jsonl has a list of messages, each with role and content; loss is on the "
       "answers of the assistant; default: /messages"},
  };
  return texts;
}

namespace {

std::string_view without(std::string_view name, std::string_view ending) {
  if (name.ends_with(ending)) name.remove_suffix(ending.size());
  return name;
}

bool is_column(const std::string& text) {
  constexpr int most_columns = 1 << 16;
  int column = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), column);
  return error == std::errc{} && end == text.data() + text.size() && column >= 1 && column <= most_columns;
}

/// RFC 6901: parts that begin with /, in which ~ is ~0 and / is ~1.
bool is_pointer(const std::string& text) {
  if (text.size() < 2 || text[0] != '/') return false;
  for (std::size_t at = text.find('~'); at != std::string::npos; at = text.find('~', at + 1))
    if (at + 1 == text.size() || (text[at + 1] != '0' && text[at + 1] != '1')) return false;
  return true;
}

void validate_fields(const TextRules& rules, config::Problems& problems) {
  const bool tsv = rules.format == TextFormat::tsv;
  const auto check = [&](const char* key, const std::optional<std::string>& field, bool has_use, const char* because) {
    if (!field) return;
    if (!has_use)
      problems.add(std::string("/fields/") + key, std::string("absent, since ") + because, *field);
    else
      problems.require(tsv ? is_column(*field) : is_pointer(*field), std::string("/fields/") + key,
                       tsv ? "the number of a column, from \"1\"" : "a JSON pointer, such as /text", *field);
  };
  const bool records = rules.format != TextFormat::text;
  const char* const plain = "the format is text";
  const char* const of_pairs = records ? "records of pairs have a source and a target" : plain;
  check("source", rules.fields.source, records, plain);
  check("target", rules.fields.target, records, plain);
  check("text", rules.fields.text, records && !rules.pairs, of_pairs);
  check("messages", rules.fields.messages, records && !rules.pairs && !tsv,
        tsv && !rules.pairs ? "a column of tsv holds no list" : of_pairs);
}

}  // namespace

TextFormat format_of(const std::optional<TextFormat>& configured, const config::StringOrList& source, bool has_target) {
  if (configured) return *configured;
  if (has_target || source.items.empty()) return TextFormat::text;
  const std::string_view name = without(without(source.items[0], ".gz"), ".zst");
  if (name.ends_with(".tsv")) return TextFormat::tsv;
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") ? TextFormat::jsonl : TextFormat::text;
}

bool may_have_prompts(const TextRules& rules) {
  if (rules.pairs || rules.format == TextFormat::text) return false;
  return rules.format == TextFormat::jsonl ? !rules.fields.text : rules.fields.source || rules.fields.target;
}

void validate_text(const TextRules& rules, const config::StringOrList& source,
                   const std::optional<config::StringOrList>& target, config::Problems& problems) {
  const auto has_names = [](const config::StringOrList& names) {
    return !names.items.empty() && std::ranges::none_of(names.items, &std::string::empty);
  };
  const bool records = rules.format != TextFormat::text;
  problems.require(has_names(source), "/source", "a text file, or several",
                   source.items.empty() ? "none" : "an empty name");
  if (target) {
    problems.require(has_names(*target), "/target", "a text file, or several", "an empty name");
    problems.require(!records, "/target", "absent, since a record of tsv or jsonl has both sides", "a file");
  }
  validate_fields(rules, problems);
  using enum DocumentUnit;
  const DocumentUnit documents = rules.documents;
  const std::string got = boost::describe::enum_to_string(documents, "");
  if (records)
    problems.require(documents == line || documents == record, "/documents", "record, since the format is tsv or jsonl",
                     got);
  else
    problems.require(documents != record, "/documents", "line, blank_line or file, since the format is text", got);
  problems.require(!rules.pairs || documents == line || documents == record, "/documents",
                   "line, since these are pairs", got);
}

std::string recipe_of(const TextRules& rules) {
  if (rules.format == TextFormat::text && rules.documents == DocumentUnit::line) return {};
  std::string recipe = fmt::format(" {} {} {}", boost::describe::enum_to_string(rules.format, ""), rules.pairs,
                                   boost::describe::enum_to_string(rules.documents, ""));
  if (rules.format == TextFormat::text) return recipe;
  for (const auto* field : {&rules.fields.source, &rules.fields.target, &rules.fields.text, &rules.fields.messages})
    recipe += fmt::format(" {}:{}", field->value_or("").size(), field->value_or(""));
  return recipe + (rules.broken_records == BrokenRecords::skip ? " skip" : "");
}

}  // namespace argosy::data
