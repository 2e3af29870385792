#pragma once

#include "core/file.hpp"
#include "data/tokenizer.hpp"
#include "interchange/formats.hpp"

/// Folders whose tokenizer consists of SentencePiece models and a table of ids (data/piece_table.hpp): OPUS-MT's, with
/// source.spm, target.spm and vocab.json, and M2M-100's, with sentencepiece.bpe.model and vocab.json.
namespace argosy::interchange {

/// The tokenizer of any folder: one for each side, if they have a vocabulary each (target_vocab.json, or CTranslate2's
/// source_vocabulary.json); such a one as one file (unless a SentencePiece model alone says the same), source.spm or
/// tokenizer.model, or else tokenizer.json, or else, of T5, spiece.model, whose pieces other classes number anew. Its
/// special ids are still to be applied. Throws Error{data} for sides with different models and no table, and where
/// there is no tokenizer.
[[nodiscard]] data::Tokenizer read_folder_tokenizer(const Files& files, const Path& folder, bool is_t5 = false);

/// Writes the files of a tokenizer that is a piece table, with the bytes that they were read with. **Collective.**
void write_table_tokenizer(OutputFolder& output, const data::TableParts& parts);

}  // namespace argosy::interchange
