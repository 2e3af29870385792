#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interchange/vocabulary.hpp"
#include "tokenizer/piece_model.hpp"

/// What trim_vocabulary() and extend_vocabulary() share: a changed vocabulary as data, the model with it, and the
/// self-test.
namespace argosy::interchange {

using tokenizer::Pieces, tokenizer::PieceType, tokenizer::space_mark, tokenizer::without_normalization;

struct VocabularyChange {
  struct Added {
    std::string piece;
    std::vector<std::int64_t> made_of;  // old ids, whose rows' mean it gets
  };
  std::string tokenizer;           // the new SentencePiece model
  std::vector<std::int64_t> kept;  // the old id of each new id, in ascending order
  std::vector<Added> added;        // the ids after those
};

/// The model with another vocabulary. Borrows `old`. Fillers have zero rows, and -1e4 in the bias of the output; a pad
/// that is dead keeps its row.
[[nodiscard]] model::StoredModel changed_model(const model::StoredModel& old, const VocabularyChange& change);

/// The self-test. Pieces and rows of both models are compared by their spelling, and `lines` are encoded with both
/// tokenizers. Where a line has the same pieces, both models read it: what the head takes must have the same bits, and
/// as the rows of the output have the same bits too, so have the products for all old pieces. A line must have the same
/// pieces if the new vocabulary has all of them and the new encoding no piece that the old one lacks. Rank 0.
/// Throws Error{internal}.
[[nodiscard]] VocabularyFigures check_vocabulary(const model::StoredModel& old, const model::StoredModel& changed,
                                                 const std::vector<std::string>& lines, const model::Forward& forward);

/// The first non-empty lines of the files, `count` in all, as many from each. Throws Error{data} when there are none.
[[nodiscard]] std::vector<std::string> first_lines(const Files& files, const std::vector<Path>& texts,
                                                   std::size_t count);

/// Throws Error{usage} for a model whose tokenizer is no SentencePiece model, or with ids that its tokenizer does not
/// have (model.vocab_size above the tokenizer's).
void require_spelled_ids(const model::StoredModel& model);

/// How a tokenizer builds pieces out of others.
class PieceBuilder {
 public:
  explicit PieceBuilder(const Pieces& pieces);  // throws Error{data} for other types than unigram and BPE
  [[nodiscard]] bool is_bpe() const noexcept { return is_bpe_; }
  void add(const std::string& piece, std::int64_t id, float score) { by_text_[piece] = {id, score}; }
  /// Unigram: the best split of a text into normal pieces; -1: an unknown character.
  [[nodiscard]] std::vector<std::int64_t> split(std::string_view text) const;
  /// BPE: the same as texts, which may be characters that are no pieces.
  [[nodiscard]] std::vector<std::string> symbols(std::string_view text) const { return merged(text, nullptr); }
  /// BPE: all pieces that are built on the way, in this order, without characters.
  [[nodiscard]] std::vector<std::int64_t> built(std::string_view text) const;

 private:
  struct Known {
    std::int64_t id;
    float score;
  };
  [[nodiscard]] std::vector<std::string> merged(std::string_view text, std::vector<std::int64_t>* on_the_way) const;

  std::map<std::string, Known, std::less<>> by_text_;
  bool is_bpe_;
};

}  // namespace argosy::interchange
