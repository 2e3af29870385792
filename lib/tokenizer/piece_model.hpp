#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The pieces of a SentencePiece model as its file has them, for code that needs more than encode and decode: exports
/// for other programs, and models with other pieces. Its protobuf fields are read and written here.
namespace argosy::tokenizer {

inline constexpr const char* space_mark = "\u2581";  // what a blank is spelled as

enum class PieceType { normal = 1, unknown = 2, control = 3, user = 4, unused = 5, byte = 6 };

/// What a SentencePiece model says, with the defaults of its format.
struct Pieces {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<PieceType> types;
  std::uint64_t model_type = 1;  // 1 unigram, 2 BPE
  bool byte_fallback = false, dummy_prefix = true, no_extra_spaces = true;
  std::string character_map;  // of the normaliser, or empty

  /// Throws Error{data} for bytes that are no SentencePiece model.
  explicit Pieces(std::string_view model);
};

/// The model with these pieces in place of its own, and all else as it is.
[[nodiscard]] std::string with_pieces(std::string_view model, const Pieces& pieces);

/// The model without normalization, and without a blank before the text: it encodes a text as it is spelled.
[[nodiscard]] std::string without_normalization(std::string_view model);

}  // namespace argosy::tokenizer
