#pragma once

#include <cstdint>
#include <vector>

#include "core/file.hpp"
#include "data/corpora.hpp"
#include "data/record_line.hpp"
#include "data/text_files.hpp"
#include "data/transforms/transform.hpp"

/// The examples of texts. For pairs a line of both files, or a line of tsv or jsonl, is one. For a language model a
/// record is a document, or a part of one of at most 64 KiB: a longer one is cut after a line, or else after a space,
/// or else between two characters. Parts laid end to end are the document, byte for byte.
namespace argosy::data {

/// A row of a model is a part of an example, which is read whole: much longer ones would be read many times.
inline constexpr std::size_t most_record_bytes = 64U << 10U;

/// Consecutive lines of a corpus.
struct RecordTask {
  const CountedCorpus* corpus = nullptr;  // borrowed
  std::int64_t first_line = 0, lines = 0;
};

struct Records {
  std::vector<Record> records;
  std::int64_t broken = 0;  // left out by data.broken_records
};

/// The records that these lines hold, whatever the lines before and after are: a document that goes on beyond the task
/// ends in another task's records. Throws Error{data} as LineReader, for a broken record under `reject`, and for a text
/// that changed after it was counted.
[[nodiscard]] Records read_records(const Files& files, const RecordTask& task);

/// All records of texts that are not counted. Compressed ones are unpacked. Throws Error{data} also when the line
/// counts of two files differ.
[[nodiscard]] Records read_records(const Files& files, const TextRules& rules, const TextFiles& texts,
                                   const UnpackSettings& unpack);

/// Cuts a record of a language model into parts of at most `most_bytes`, which it appends to `parts`.
void append_parts(Record&& record, std::vector<Record>& parts, std::size_t most_bytes = most_record_bytes);

/// The example that a record is, as text.
[[nodiscard]] Example example_of(Record&& record);

/// Throws Error{data} naming both files and counts.
[[noreturn]] void throw_unequal_lines(const Path& source, std::uint64_t source_lines, const Path& target,
                                      std::uint64_t target_lines);

}  // namespace argosy::data
