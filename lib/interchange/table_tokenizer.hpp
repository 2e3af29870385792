#pragma once

#include <optional>
#include <string>

#include "core/file.hpp"
#include "data/tokenizer.hpp"
#include "interchange/formats.hpp"

/// Folders whose tokenizer consists of SentencePiece models and a table of ids (data/piece_table.hpp): OPUS-MT's, with
/// source.spm, target.spm and vocab.json, and M2M-100's, with sentencepiece.bpe.model and vocab.json.
namespace argosy::interchange {

/// The tokenizer of such a folder as one file; nullopt if there is none, or if a SentencePiece model alone says the
/// same. Throws Error{usage} for a vocabulary of each side, Error{data} for sides with different models and no table.
[[nodiscard]] std::optional<std::string> read_table_tokenizer(const Files& files, const Path& folder);

/// Writes the files of a tokenizer that is a piece table, with the bytes that they were read with. **Collective.**
void write_table_tokenizer(OutputFolder& output, const data::TableParts& parts);

}  // namespace argosy::interchange
