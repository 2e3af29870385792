#pragma once

#include <string>
#include <vector>

#include "core/file.hpp"
#include "data/batch.hpp"
#include "data/data_config.hpp"
#include "data/records.hpp"
#include "data/tokenizer.hpp"

/// Small texts held in memory: validation sets, and lines to translate. Line i of the source belongs to line i of the
/// target.
namespace argosy::data {

struct ParallelText {
  std::vector<std::string> source{}, target{};  // of equal size
  Prefixes prefixes{};
};

/// Lines of a file without LF or CR LF; a last line without LF is a line.
/// Throws Error{data} for a missing file, an empty one, and under `reject` for invalid UTF-8 (file, line, byte);
/// `replace` puts U+FFFD for each byte that fits nowhere.
[[nodiscard]] std::vector<std::string> read_lines(const Files& files, const Path& path, InvalidUtf8 policy);

/// Both sides of all records. Throws Error{data} as read_records (records.hpp), and for texts without records.
[[nodiscard]] ParallelText read_parallel_text(const Files& files, const TextRules& rules, const TextFiles& texts,
                                              const UnpackSettings& unpack);

/// Every line of `text` once, sorted by length and cut like training batches; pairs longer than micro_size alone get a
/// batch of their own; they begin with the prefixes. Batch::examples are line numbers. Rank r of `world` gets batches
/// r, r + world, … ; all ranks see the same order. An empty `target` gives batches for translation: no target side.
[[nodiscard]] std::vector<Batch> batches_of(const Tokenizer& tokenizer, const ParallelText& text, BatchUnit unit,
                                            std::int64_t micro_size, int rank = 0, int world = 1);

/// Documents laid end to end as packed rows of a language model. Records without text are left out.
[[nodiscard]] std::vector<Batch> lm_batches_of(const Tokenizer& tokenizer, const std::vector<Record>& records,
                                               std::int64_t sequence_length, std::int64_t rows, int rank = 0,
                                               int world = 1);

/// Bytes of the text that the labels of a batch spell. The end of a text or document counts as one, as that of a line.
[[nodiscard]] std::int64_t label_bytes(const Tokenizer& tokenizer, const Batch& batch);

}  // namespace argosy::data
