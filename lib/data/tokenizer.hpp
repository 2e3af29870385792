#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/piece_table.hpp"
#include "spec/vocabulary.hpp"

/// Text ↔ ids through a SentencePiece model, a tokenizer.json of Hugging Face or a piece table, whose pieces are the
/// live ids of a model's vocabulary. Encode and decode may run on many threads at once.
namespace argosy::tokenizer {
class Pipeline;
}

namespace argosy::data {

enum class TokenizerKind { sentence_piece, json, table };

class Tokenizer {
 public:
  /// From the bytes of a file of any of these formats, which its first bytes tell apart. Throws Error{data} when they
  /// are none or the ids do not fit the layout; `name` stands in the message.
  static Tokenizer load(std::string model_bytes, spec::VocabularyRule rule, std::string_view name = "tokenizer");
  /// The same from a file; a missing one is Error{data} with the advice to run preprocess.
  static Tokenizer read(const Files& files, const Path& path, spec::VocabularyRule rule);
  /// Takes another rule for the ids of the same file. Throws as load().
  void apply(spec::VocabularyRule rule, std::string_view name);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Best segmentation, without EOS. Ids < pieces. The side matters to piece tables alone.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Side side = Side::target) const;
  /// Text of ids; control and dead ids leave nothing, unknown ones " ⁇ " (SentencePiece) or what tokenizer.json says.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;
  /// Spelling of an id: a piece, "<unused_k>" for fillers, "<pad>".
  [[nodiscard]] std::string piece(std::int64_t id) const;
  /// Log-probability (unigram) or negative merge rank (BPE) of a live piece.
  [[nodiscard]] float score(std::int64_t id) const;
  /// How many ids the file spells. A model may have more (VocabularyRule::least_pieces).
  [[nodiscard]] std::int64_t spelled_ids() const;
  /// Id of a piece, if it is one.
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view piece) const;

  /// The id that the file has for what it cannot spell.
  [[nodiscard]] std::optional<std::int64_t> unknown() const;
  /// Whether an id comes before each text by the template of a tokenizer.json; a SentencePiece model does not say.
  [[nodiscard]] std::optional<bool> puts_before(std::int64_t id) const;
  [[nodiscard]] TokenizerKind kind() const;
  /// What a tokenizer.json says; nullptr: the file is none.
  [[nodiscard]] const tokenizer::Pipeline* pipeline() const;
  /// Whether an id is a piece of text: neither special, nor the unknown piece, nor one that the file does not have.
  [[nodiscard]] bool is_ordinary(std::int64_t id) const;

  [[nodiscard]] const spec::Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  /// Bytes of the model file, as stored in checkpoints and exports, and their digest.
  [[nodiscard]] const std::string& model_bytes() const noexcept { return model_bytes_; }
  [[nodiscard]] const Digest& digest() const noexcept { return digest_; }

 private:
  struct Model;
  struct SentencePieceModel;
  struct JsonModel;
  struct TableModel;
  Tokenizer(std::unique_ptr<const Model> model, std::string model_bytes);
  std::unique_ptr<const Model> model_;
  std::string model_bytes_;
  Digest digest_;
  spec::Vocabulary vocabulary_;
};

}  // namespace argosy::data
