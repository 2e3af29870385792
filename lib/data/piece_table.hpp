#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Tokenizers that split text with SentencePiece and number the pieces by a table: OPUS-MT's, with a model for each
/// side, and M2M-100's, with tokens for languages after the table. lib/data/FORMAT.md describes the file that holds
/// all their parts. Immutable; many threads may encode and decode at once.
namespace sentencepiece {
class SentencePieceProcessor;
}

namespace argosy::data {

/// Which text of a pair is encoded. A tokenizer may split the two differently.
enum class Side { source, target };

/// The parts of such a tokenizer, as the bytes of their files.
struct TableParts {
  std::string source, target;  // SentencePiece models; an empty target: the source's
  std::string table;           // vocab.json: {piece: id}
  std::string languages;       // M2M-100's set of language tokens: m2m100, wmt21; empty: OPUS-MT's way

  bool operator==(const TableParts&) const = default;
};

/// Whether the bytes of a tokenizer file begin as pack() writes them.
[[nodiscard]] bool is_packed(std::string_view bytes);
/// One file with all parts.
[[nodiscard]] std::string pack(const TableParts& parts);
/// Throws Error{data}, which begins with `name`, for bytes that pack() has not written.
[[nodiscard]] TableParts unpack(std::string_view bytes, std::string_view name);

class PieceTable {
 public:
  /// Throws Error{data}, which begins with `name`: a model or table that is none, ids that are not 0, 1, 2 … , each
  /// once, a table without <unk> or </s>, unknown languages.
  PieceTable(const TableParts& parts, std::string_view name);
  ~PieceTable();
  PieceTable(const PieceTable&) = delete;
  PieceTable& operator=(const PieceTable&) = delete;

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Side side) const;
  /// By the model of the target, without control pieces, language tokens, and blanks at both ends.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;
  /// A last piece <pad> does not count: Marian's layout has it after the pieces (spec::Vocabulary).
  [[nodiscard]] std::int32_t size() const noexcept { return size_; }
  [[nodiscard]] const std::string& piece(std::int32_t id) const { return pieces_[static_cast<std::size_t>(id)]; }
  /// That of the target's model, or of the source's; 0 for pieces that neither has.
  [[nodiscard]] float score(std::int32_t id) const;
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view piece) const;

 private:
  void read_table(const std::string& table, std::string_view name);
  void add_languages(const std::string& languages, std::string_view name);
  [[nodiscard]] const sentencepiece::SentencePieceProcessor& model(Side side) const noexcept {
    return side == Side::target && target_ ? *target_ : *source_;
  }

  std::unique_ptr<const sentencepiece::SentencePieceProcessor> source_, target_;  // target_: null if it is source_
  std::vector<std::string> pieces_;                                               // by id
  std::map<std::string, std::int32_t, std::less<>> ids_;
  std::int32_t unknown_ = 0, size_ = 0;
  std::int32_t table_size_ = 0;  // ids from there on are language tokens
  bool takes_codes_ = false;     // a text may begin with a piece in angle quotes
};

}  // namespace argosy::data
