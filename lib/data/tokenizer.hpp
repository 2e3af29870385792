#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/piece_table.hpp"
#include "data/tokenizer_pack.hpp"
#include "spec/vocabulary.hpp"

/// Text ↔ ids through a SentencePiece model, a tokenizer.json of Hugging Face or a piece table, whose pieces are the
/// live ids of a model's vocabulary. A model may have one for each language, and one of its tasks then has one for each
/// side; all of them have the same special ids and as many ids as the largest. Encode and decode may run on many
/// threads at once. Copies share what they have read.
namespace argosy::tokenizer {
class Pipeline;
}

namespace argosy::data {

enum class TokenizerKind { sentence_piece, json, table };

class Tokenizer {
 public:
  /// From the bytes of a file of any of these formats, or of model_bytes(), which their first bytes tell apart. Throws
  /// Error{data} when they are none or the ids do not fit the layout; `name` stands in the message.
  static Tokenizer load(std::string model_bytes, spec::VocabularyRule rule, std::string_view name = "tokenizer");
  /// The same from a file. Throws as tokenizer_bytes() and load().
  static Tokenizer read(const Files& files, const Path& path, spec::VocabularyRule rule);
  /// One for each language, or for source and target. Throws as load().
  static Tokenizer by_language(const TokenizerFiles& files, spec::VocabularyRule rule,
                               std::string_view name = "tokenizer");
  static Tokenizer by_side(std::string source, std::string target, spec::VocabularyRule rule,
                           std::string_view name = "tokenizer");
  /// Takes another rule for the ids of the same files. Throws as load().
  void apply(spec::VocabularyRule rule, std::string_view name);

  /// The tokenizer of a direction, of its source and its target language: itself, unless there is one for each
  /// language. Throws Error{config} for a language that has none, and for no language.
  [[nodiscard]] Tokenizer of(std::span<const std::string> languages) const;
  /// That of a side: itself, unless the sides differ.
  [[nodiscard]] const Tokenizer& side(Side of) const;
  [[nodiscard]] bool is_by_language() const noexcept;
  [[nodiscard]] bool is_by_side() const noexcept;
  /// By language or side; empty: there is one.
  [[nodiscard]] const std::map<std::string, Tokenizer>& parts() const;

  /// Best segmentation, without EOS. Ids < pieces. The side matters where the sides differ, and to piece tables.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, Side side = Side::target) const;
  /// Text of ids, of the target where the sides differ; control and dead ids leave nothing, unknown ones " ⁇ "
  /// (SentencePiece) or what tokenizer.json says.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

  // What follows asks one file: not where there are several.
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

  // Of one and of several.
  [[nodiscard]] const spec::Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  /// Bytes of the model file, as stored in checkpoints and exports; of several, of all of them (FORMAT.md).
  [[nodiscard]] std::string model_bytes() const;
  [[nodiscard]] const Digest& digest() const noexcept { return digest_; }

 private:
  struct Model;
  struct SentencePieceModel;
  struct JsonModel;
  struct TableModel;
  struct Parts;
  Tokenizer() = default;
  static Tokenizer of_parts(Parts parts);
  static Tokenizer of_files(bool by_language, const TokenizerFiles& files, spec::VocabularyRule rule,
                            std::string_view name);
  [[nodiscard]] const Model& model() const;

  std::shared_ptr<const Model> model_;  // of one file
  std::shared_ptr<const std::string> model_bytes_;
  std::shared_ptr<const Parts> parts_;  // of several
  Digest digest_;
  spec::Vocabulary vocabulary_;
};

/// The file; a missing one is Error{data} with the advice to run preprocess.
[[nodiscard]] std::string tokenizer_bytes(const Files& files, const Path& path);

/// The digest as text; of one for each language, a digest for each.
[[nodiscard]] boost::json::value digests_of(const Tokenizer& tokenizer);

}  // namespace argosy::data
