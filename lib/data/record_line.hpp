#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text_config.hpp"

/// One example of a text, and how a line of tsv or jsonl becomes one. Pure; any thread.
namespace argosy::data {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

/// Where a record stands in the files of its side, laid end to end: so many bytes of a line, or of a document of
/// several lines. part: of the record that the line is, as append_parts cuts it.
struct RecordPlace {
  std::uint64_t at = 0;
  std::uint32_t bytes = 0, part = 0;
};
static_assert(sizeof(RecordPlace) == 16);

/// A pair, or for a language model a document or a part of one (in target, source is empty).
struct Record {
  std::string source, target;
  bool loss_on_all = true;
  std::vector<ByteRange> loss{};  // otherwise the parts of target with loss, ascending
  bool starts_document = true, ends_document = true;
  std::uint64_t line = 0;  // in the corpus, from 0: its files laid end to end
  /// target_place: also of a line that holds both sides. None where the text is too far from the record's.
  std::optional<RecordPlace> source_place{}, target_place{};
};

/// Why a line holds no record, and at which of its bytes.
struct BrokenRecord {
  std::string wanted, got;
  std::size_t byte = 0;
};

/// Puts the texts of a line of tsv or jsonl (`rules.format`) into `record`. Pairs need a source and a target. A
/// language model takes what `rules.fields` name, or what is there: messages, or a text, or a source and a target with
/// loss on the target alone. Messages are laid out as ChatML, `<|im_start|>ROLE\nCONTENT<|im_end|>\n` each; loss is on
/// the content of the assistant and the `<|im_end|>` after it.
[[nodiscard]] std::optional<BrokenRecord> parse_record(std::string_view line, const TextRules& rules, Record& record);

}  // namespace argosy::data
