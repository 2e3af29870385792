#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>

/// The ids of a model's vocabulary, decided here for data, model, search and export. The pieces of a tokenizer are ids
/// [0, pieces); the rows of the embedding are padded to a multiple. Marian and Pegasus: eos 0, unk 1, pieces,
/// fillers, pad last. T5: pad 0, eos 1, unk 2, pieces, fillers. Llama: unk 0, bos 1, eos 2, pieces, fillers, no pad.
/// A model of others may have its own ids (TokenIds): pieces, fillers.
namespace argosy::spec {

enum class TokenLayout { marian, pegasus, t5, llama };

/// The section `model.token_ids`: the special ids of a model whose tokenizer has another order than the layouts.
struct TokenIds {
  std::int64_t eos = 0;
  std::optional<std::int64_t> unk = std::nullopt, bos = std::nullopt, pad = std::nullopt, start = std::nullopt;
  bool operator==(const TokenIds&) const = default;
};
BOOST_DESCRIBE_STRUCT(TokenIds, (), (eos, unk, bos, pad, start))

/// What decides the ids of a model, apart from the number of pieces.
struct VocabularyRule {
  TokenLayout layout = TokenLayout::marian;
  std::int64_t multiple = 64;                  // the embedding's rows are padded to it
  std::optional<TokenIds> ids = std::nullopt;  // instead of the layout's
  std::int64_t least_pieces = 0;  // ids beyond the tokenizer's are pieces that no text has, up to this many
  bool operator==(const VocabularyRule&) const = default;
};

struct Vocabulary {
  TokenLayout layout = TokenLayout::marian;
  std::int64_t pieces = 0;  // of the tokenizer: ids [0, pieces) are live
  std::int64_t rows = 0;    // of the model's embedding, a multiple of VocabularyRule::multiple
  std::int64_t eos = 0;
  std::optional<std::int64_t> unk = std::nullopt, bos = std::nullopt, pad = std::nullopt;
  std::int64_t start = 0;    // first decoder input: pad in Marian, Pegasus and T5 layout, bos in Llama layout
  bool has_own_ids = false;  // TokenIds

  /// Dead ids are never a target and never decoded: fillers, and pad in Marian and Pegasus layout.
  [[nodiscard]] bool is_dead(std::int64_t id) const noexcept { return id >= pieces; }
  /// Id that fills rows after their end: pad, or eos if there is no pad. Masked everywhere.
  [[nodiscard]] std::int64_t filler() const noexcept { return pad.value_or(eos); }
  /// The id whose embedding is zero and stays so: the start id in Marian and Pegasus layout.
  [[nodiscard]] std::optional<std::int64_t> zero_row() const noexcept {
    const bool zero = layout == TokenLayout::marian || layout == TokenLayout::pegasus;
    return zero && !has_own_ids ? std::optional(start) : std::nullopt;
  }
  bool operator==(const Vocabulary&) const = default;
};

/// pieces: of the tokenizer and, with least_pieces, those that no text has.
[[nodiscard]] Vocabulary vocabulary_of(const VocabularyRule& rule, std::int64_t pieces);

}  // namespace argosy::spec
