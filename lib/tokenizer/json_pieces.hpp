#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/piece_model.hpp"
#include "tokenizer/pipeline.hpp"

/// The pieces of a tokenizer.json as its file has them, for models with other pieces. piece_model.hpp is the same for
/// SentencePiece.
namespace argosy::tokenizer {

struct JsonPieces {
  std::vector<std::string> texts;  // by id, added tokens included
  std::vector<PieceType> types;  // added tokens are control or user; byte: also what byte-level models spell bytes with
  std::vector<std::string> scores;  // unigram: as the file spells the numbers, of the pieces of the model
  std::vector<std::pair<std::string, std::string>> merges;  // BPE, best first
  std::size_t in_model = 0;  // ids from there on are added tokens that the model does not have
  bool is_byte_level = false;

  /// json: the text that `pipeline` was loaded from.
  JsonPieces(const Pipeline& pipeline, std::string_view json);
};

/// The file with these pieces in place of its own, and all else as it is: added tokens and the ids around a text get
/// their new ids. old_ids: the old id of each piece; -1: a new one.
[[nodiscard]] std::string with_pieces(std::string_view json, const JsonPieces& pieces,
                                      std::span<const std::int64_t> old_ids);

}  // namespace argosy::tokenizer
