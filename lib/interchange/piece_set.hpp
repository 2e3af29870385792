#pragma once

#include <boost/functional/hash.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer.hpp"
#include "tokenizer/json_pieces.hpp"
#include "tokenizer/piece_model.hpp"

/// The pieces of a tokenizer file: which of them can go, and how others are added. Ids are those of the file, for one
/// thread.
namespace argosy::interchange {

class VocabularyFile {
 public:
  struct Added {
    std::string piece;
    std::vector<std::int64_t> made_of;  // the old pieces of its text
  };

  /// Borrows the tokenizer. Throws Error{data} for SentencePiece models that are neither unigram nor BPE.
  static std::unique_ptr<VocabularyFile> of(const data::Tokenizer& tokenizer, const std::string& where);
  virtual ~VocabularyFile() = default;

  /// Which pieces must stay, if those of `used` do, so that text of them is encoded as before: also those that are not
  /// ordinary, the parts that BPE builds pieces from, and of unigram models those of the highest and the lowest score.
  [[nodiscard]] virtual std::vector<bool> needed(std::vector<bool> used) const = 0;
  /// The file without the other pieces. kept: what needed() has returned.
  [[nodiscard]] virtual std::string file_with(const std::vector<bool>& kept) const = 0;

  /// A line of text as pieces spell it.
  [[nodiscard]] virtual std::string spelled(std::string_view line) const = 0;
  /// Adds a piece, and parts that BPE needs to build it. False: it exists. In text it takes the place of the pieces
  /// that the old tokenizer makes of it. Throws Error{data} if it cannot be built.
  virtual bool add(const std::string& piece) = 0;
  /// The file with what was added.
  [[nodiscard]] virtual std::string file() const = 0;
  /// What was added, in the order of ids, and the id of the first.
  [[nodiscard]] const std::vector<Added>& added() const noexcept { return added_; }
  [[nodiscard]] virtual std::int64_t added_at() const = 0;

 protected:
  std::vector<Added> added_;
};

/// How a tokenizer builds pieces out of others.
class PieceBuilder {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;
  struct Known {
    std::int64_t id;
    double score;
  };

  /// merges: of a tokenizer.json. A BPE model of SentencePiece joins any neighbours that are a piece together.
  PieceBuilder(bool is_bpe, bool has_merges) : is_bpe_(is_bpe), has_merges_(has_merges) {}
  void add(const std::string& piece, std::int64_t id, double score) { by_text_[piece] = {id, score}; }
  /// The first merges come first; what is added later comes after them.
  void add_merge(const std::string& left, const std::string& right) {
    ranks_.try_emplace({left, right}, ranks_.size());
  }
  [[nodiscard]] bool has_merge(const std::string& left, const std::string& right) const {
    return ranks_.contains(std::pair{left, right});
  }
  /// nullptr: no piece.
  [[nodiscard]] const Known* find(std::string_view piece) const;

  /// The pieces of a text, of those with ids below `end`; a character that is none is a text by itself.
  [[nodiscard]] std::vector<std::string> split(std::string_view text, std::int64_t end) const {
    return is_bpe_ ? merged(text, end, nullptr) : best_split(text, end);
  }
  /// BPE: all pieces that are built on the way, in this order; with merges, also the characters that they begin with.
  /// Empty: the merges do not build it.
  [[nodiscard]] std::vector<std::int64_t> built(std::string_view piece) const;

 private:
  [[nodiscard]] std::vector<std::string> merged(std::string_view text, std::int64_t end,
                                                std::vector<std::int64_t>* on_the_way) const;
  [[nodiscard]] std::vector<std::string> best_split(std::string_view text, std::int64_t end) const;

  std::map<std::string, Known, std::less<>> by_text_;
  boost::unordered_flat_map<std::pair<std::string, std::string>, std::size_t> ranks_;
  bool is_bpe_, has_merges_;
};

/// A SentencePiece model or a tokenizer.json.
class PieceSet final : public VocabularyFile {
 public:
  /// pipeline: of a tokenizer.json; null: a SentencePiece model. Throws Error{data} for models that are neither unigram
  /// nor BPE.
  PieceSet(std::string bytes, const tokenizer::Pipeline* pipeline);

  [[nodiscard]] std::vector<bool> needed(std::vector<bool> used) const override;
  [[nodiscard]] std::string file_with(const std::vector<bool>& kept) const override;
  [[nodiscard]] std::string spelled(std::string_view line) const override;
  bool add(const std::string& piece) override;
  [[nodiscard]] std::string file() const override;
  [[nodiscard]] std::int64_t added_at() const override { return old_size_; }

  [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return texts_; }
  /// The old pieces of a text. Throws Error{data} if there are none.
  [[nodiscard]] std::vector<std::int64_t> made_of(std::string_view text) const;

 private:
  void build(const std::string& piece);
  void put(const std::string& piece, double score);

  std::string bytes_;
  std::optional<tokenizer::JsonPieces> json_;
  std::vector<std::string> texts_;
  std::vector<double> scores_;
  std::vector<tokenizer::PieceType> types_;
  bool is_bpe_ = false;
  std::int64_t old_size_ = 0;
  PieceBuilder builder_;
  std::map<std::string, std::int64_t, std::less<>> ids_;
  double lowest_ = 0;  // score
};

}  // namespace argosy::interchange
