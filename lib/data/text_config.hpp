#pragma once

#include <boost/describe.hpp>
#include <optional>
#include <span>
#include <string>

#include "config/config.hpp"

/// What a text says: its format, where in a record the text is, and where a document ends. The keys are those of
/// corpora and of validation sets. Plain values, no torch, no MPI.
namespace argosy::data {

enum class InvalidUtf8 { reject, replace };
BOOST_DESCRIBE_ENUM(InvalidUtf8, reject, replace)
enum class TextFormat { text, tsv, jsonl };
BOOST_DESCRIBE_ENUM(TextFormat, text, tsv, jsonl)
enum class DocumentUnit { line, blank_line, file, record };
BOOST_DESCRIBE_ENUM(DocumentUnit, line, blank_line, file, record)
enum class BrokenRecords { reject, skip };
BOOST_DESCRIBE_ENUM(BrokenRecords, reject, skip)

/// Where a record has its texts: JSON pointers, or for tsv numbers of columns, from 1. Absent: the usual place.
struct FieldsConfig {
  std::optional<std::string> source{}, target{}, text{}, messages{};
  bool operator==(const FieldsConfig&) const = default;
};
BOOST_DESCRIBE_STRUCT(FieldsConfig, (), (source, target, text, messages))
std::span<const config::KeyText> key_texts(const FieldsConfig&);

/// All that decides which records a text holds.
struct TextRules {
  TextFormat format = TextFormat::text;
  bool pairs = false;  // else documents of a language model
  FieldsConfig fields{};
  DocumentUnit documents = DocumentUnit::line;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::reject;
  BrokenRecords broken_records = BrokenRecords::reject;
};

/// The format that is configured. Otherwise by the ending of the first name, after .gz or .zst is removed: .tsv,
/// .jsonl, .ndjson; else text. A text with a target file is always text.
[[nodiscard]] TextFormat format_of(const std::optional<TextFormat>& configured, const config::StringOrList& source,
                                   bool has_target);

/// Whether a record of a language model may begin with a prompt, which bears no loss: a source, or messages.
[[nodiscard]] bool may_have_prompts(const TextRules& rules);

/// Adds what cannot work in the keys that corpora and validation sets share.
void validate_text(const TextRules& rules, const config::StringOrList& source,
                   const std::optional<config::StringOrList>& target, config::Problems& problems);

/// Text of the rules that decide a token shard, besides invalid_utf8; empty for a plain text, one example a line.
[[nodiscard]] std::string recipe_of(const TextRules& rules);

}  // namespace argosy::data
