#pragma once

#include <cstdint>
#include <optional>

/// The ids of a model's vocabulary, decided here alone for data, model, search and export. A tokenizer's pieces are the
/// live ids; rows of the embedding are padded to a multiple. Marian and Pegasus: eos 0, unk 1, pieces, fillers, pad
/// last. T5: pad 0, eos 1, unk 2, pieces, fillers. Llama: unk 0, bos 1, eos 2, pieces, fillers, no pad.
namespace argosy::data {

enum class ModelShape { marian, pegasus, t5, llama };

/// What of a model decides its ids, apart from the number of pieces.
struct TokenShape {
  TokenShape(ModelShape model_family, std::int64_t multiple = 64)  // NOLINT(google-explicit-constructor): most have 64
      : family(model_family), vocab_multiple(multiple) {}
  ModelShape family;
  std::int64_t vocab_multiple;  // the embedding's rows are padded to it
  bool operator==(const TokenShape&) const = default;
};

/// The ids of a model's vocabulary. Dead ids never are a target and never come out of decoding.
struct Vocabulary {
  ModelShape shape = ModelShape::marian;
  std::int64_t live_size = 0;    // pieces of the tokenizer file: ids [0, live_size)
  std::int64_t padded_size = 0;  // rows of the model's embedding, a multiple of vocab_multiple
  std::int64_t eos = 0, unk = 0;
  std::optional<std::int64_t> bos = std::nullopt, pad = std::nullopt;
  std::int64_t start = 0;  // first decoder input: pad in Marian, Pegasus and T5 shape, bos in Llama shape

  /// Fillers, and pad in Marian and Pegasus shape: exactly the ids [live_size, padded_size).
  [[nodiscard]] bool is_dead(std::int64_t id) const noexcept { return id >= live_size; }
  /// Id that fills rows behind their end: pad, or eos where there is none. Masked everywhere.
  [[nodiscard]] std::int64_t filler() const noexcept { return pad.value_or(eos); }
  bool operator==(const Vocabulary&) const = default;
};

/// The vocabulary of `pieces` live pieces in a shape.
[[nodiscard]] Vocabulary vocabulary_of(TokenShape shape, std::int64_t pieces);

}  // namespace argosy::data
