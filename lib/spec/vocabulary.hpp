#pragma once

#include <cstdint>
#include <optional>

/// The ids of a model's vocabulary, decided here for data, model, search and export. The pieces of a tokenizer are ids
/// [0, pieces); the rows of the embedding are padded to a multiple. Marian and Pegasus: eos 0, unk 1, pieces,
/// fillers, pad last. T5: pad 0, eos 1, unk 2, pieces, fillers. Llama: unk 0, bos 1, eos 2, pieces, fillers, no pad.
namespace argosy::spec {

enum class TokenLayout { marian, pegasus, t5, llama };

/// What decides the ids of a model, apart from the number of pieces.
struct VocabularyRule {
  TokenLayout layout = TokenLayout::marian;
  std::int64_t multiple = 64;  // the embedding's rows are padded to it
  bool operator==(const VocabularyRule&) const = default;
};

struct Vocabulary {
  TokenLayout layout = TokenLayout::marian;
  std::int64_t pieces = 0;  // of the tokenizer: ids [0, pieces) are live
  std::int64_t rows = 0;    // of the model's embedding, a multiple of VocabularyRule::multiple
  std::int64_t eos = 0, unk = 0;
  std::optional<std::int64_t> bos = std::nullopt, pad = std::nullopt;
  std::int64_t start = 0;  // first decoder input: pad in Marian, Pegasus and T5 layout, bos in Llama layout

  /// Dead ids are never a target and never decoded: fillers, and pad in Marian and Pegasus layout.
  [[nodiscard]] bool is_dead(std::int64_t id) const noexcept { return id >= pieces; }
  /// Id that fills rows after their end: pad, or eos if there is no pad. Masked everywhere.
  [[nodiscard]] std::int64_t filler() const noexcept { return pad.value_or(eos); }
  /// The id whose embedding is zero and stays so: the start id in Marian and Pegasus layout.
  [[nodiscard]] std::optional<std::int64_t> zero_row() const noexcept {
    const bool zero = layout == TokenLayout::marian || layout == TokenLayout::pegasus;
    return zero ? std::optional(start) : std::nullopt;
  }
  bool operator==(const Vocabulary&) const = default;
};

[[nodiscard]] Vocabulary vocabulary_of(const VocabularyRule& rule, std::int64_t pieces);

}  // namespace argosy::spec
