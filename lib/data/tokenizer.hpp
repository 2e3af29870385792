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

/// Text ↔ ids through a SentencePiece model, and the ids of a model's vocabulary: the file's pieces are the live ids;
/// the model has them padded to a multiple of 64. Immutable after load; encode and decode may run on many threads at
/// once. Ids: Marian and Pegasus: eos 0, unk 1, pieces, fillers, pad last. T5: pad 0, eos 1, unk 2, pieces, fillers.
/// Llama: unk 0, bos 1, eos 2, pieces, fillers, no pad.
namespace argosy::data {

enum class ModelShape { marian, pegasus, t5, llama };

/// The ids of a model's vocabulary. Dead ids never are a target and never come out of decoding.
struct Vocabulary {
  ModelShape shape = ModelShape::marian;
  std::int64_t live_size = 0;    // pieces of the tokenizer file: ids [0, live_size)
  std::int64_t padded_size = 0;  // rows of the model's embedding, a multiple of 64
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
[[nodiscard]] Vocabulary vocabulary_of(ModelShape shape, std::int64_t pieces, std::int64_t multiple = 64);

class Tokenizer {
 public:
  /// From the bytes of a SentencePiece model. Throws Error{data} when they are no model or its ids do not fit the
  /// shape; `name` stands in the message.
  static Tokenizer load(std::string model_bytes, ModelShape shape, std::string_view name = "tokenizer");
  /// The same from a file; a missing one is Error{data} with the advice to run preprocess.
  static Tokenizer read(const Files& files, const Path& path, ModelShape shape);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Best segmentation, without EOS. Ids < live_size.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Text of ids; control and dead ids leave nothing, unknown ones " ⁇ ".
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;
  /// Spelling of an id: a piece, "<unused_k>" for fillers, "<pad>".
  [[nodiscard]] std::string piece(std::int64_t id) const;
  /// Log-probability (unigram) or negative merge rank (BPE) of a live piece.
  [[nodiscard]] float score(std::int64_t id) const;
  /// Id of a piece, if it is one.
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view piece) const;

  [[nodiscard]] const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  /// Bytes of the model file, as stored in checkpoints and exports, and their digest.
  [[nodiscard]] const std::string& model_bytes() const noexcept { return model_bytes_; }
  [[nodiscard]] const Digest& digest() const noexcept { return digest_; }

 private:
  struct Model;
  Tokenizer(std::unique_ptr<Model> model, std::string model_bytes, Vocabulary vocabulary);
  std::unique_ptr<Model> model_;
  std::string model_bytes_;
  Digest digest_;
  Vocabulary vocabulary_;
};

}  // namespace argosy::data
