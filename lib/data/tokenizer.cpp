#include "data/tokenizer.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"

namespace argosy::data {
namespace {

constexpr std::array layout_names{"Marian", "Pegasus", "T5", "Llama"};  // by spec::TokenLayout

}  // namespace

struct Tokenizer::Model {
  sentencepiece::SentencePieceProcessor processor;
};

Tokenizer::Tokenizer(std::unique_ptr<Model> model, std::string model_bytes, spec::Vocabulary vocabulary)
    : model_(std::move(model)),
      model_bytes_(std::move(model_bytes)),
      digest_(digest_of(model_bytes_)),
      vocabulary_(vocabulary) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(std::string model_bytes, spec::VocabularyRule rule, std::string_view name) {
  auto model = std::make_unique<Model>();
  const auto status = model->processor.LoadFromSerializedProto(model_bytes);
  if (!status.ok())
    throw_error(Fault::data, std::string{name}, "a SentencePiece model",
                fmt::format("{} bytes that are not one", model_bytes.size()),
                "use the .model file that SentencePiece or preprocess wrote");
  const std::int64_t pieces = model->processor.GetPieceSize();
  const spec::Vocabulary vocabulary = spec::vocabulary_of(rule, std::max(pieces, rule.least_pieces));
  const auto ids_text = [](std::int64_t bos, std::int64_t eos, std::int64_t unk, std::int64_t pad) {
    return fmt::format("bos {}, eos {}, unk {}, pad {}", bos, eos, unk, pad);
  };
  const auto& processor = model->processor;
  const std::int64_t file_pad = vocabulary.pad && *vocabulary.pad < vocabulary.pieces ? *vocabulary.pad : -1;
  const std::string wanted =
      ids_text(vocabulary.bos.value_or(-1), vocabulary.eos, vocabulary.unk.value_or(-1), file_pad);
  const std::string got = ids_text(processor.bos_id(), processor.eos_id(), processor.unk_id(), processor.pad_id());
  if (!rule.ids && wanted != got)
    throw_error(
        Fault::data, std::string{name},
        fmt::format("the ids of a {} model ({})", layout_names.at(static_cast<std::size_t>(rule.layout)), wanted), got,
        "train a tokenizer for this model type (data.tokenizer_training)");
  return Tokenizer{std::move(model), std::move(model_bytes), vocabulary};
}

Tokenizer Tokenizer::read(const Files& files, const Path& path, spec::VocabularyRule rule) {
  if (!files.exists(path))
    throw_claim(Fault::data, path.string() + ": the tokenizer does not exist", path.string(), "the tokenizer",
                "no such file",
                "run preprocess, which trains it if data.tokenizer_training is set, or correct data.tokenizer");
  return load(files.read_text(path), rule, path.string());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const auto status = model_->processor.Encode(text, &ids);
  ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<int> live;
  live.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < model_->processor.GetPieceSize()) live.push_back(id);
  }
  std::string text;
  const auto status = model_->processor.Decode(live, &text);
  ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  return text;
}

std::string Tokenizer::piece(std::int64_t id) const {
  ARGOSY_CHECK(id >= 0 && id < vocabulary_.rows, "id {} of {}", id, vocabulary_.rows);
  const std::int64_t spelled = model_->processor.GetPieceSize();
  if (id < spelled) return model_->processor.IdToPiece(static_cast<int>(id));
  if (vocabulary_.pad == id) return "<pad>";
  return fmt::format("<unused_{}>", id - spelled);
}

float Tokenizer::score(std::int64_t id) const {
  ARGOSY_CHECK(id >= 0 && id < model_->processor.GetPieceSize(), "id {} of {}", id, vocabulary_.pieces);
  return model_->processor.GetScore(static_cast<int>(id));
}

std::optional<std::int64_t> Tokenizer::unknown() const { return model_->processor.unk_id(); }

std::optional<std::int64_t> Tokenizer::id_of(std::string_view piece) const {
  const int id = model_->processor.PieceToId(piece);
  if (id == unknown() && this->piece(id) != piece) return std::nullopt;
  return id;
}

}  // namespace argosy::data
