#include "data/subword_sampler.hpp"

#include <sentencepiece_processor.h>

#include <bit>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "tokenizer/piece_sampler.hpp"
#include "tokenizer/pipeline.hpp"

namespace argosy::data {

struct SubwordSampler::OfSentencePiece {
  sentencepiece::SentencePieceProcessor processor;
  tokenizer::PieceSampler pieces;

  OfSentencePiece(const std::string& model, const tokenizer::Sampling& how) : pieces(tokenizer::Pieces{model}, how) {
    const auto status = processor.LoadFromSerializedProto(model);
    ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  }
  /// The library does not hand out its normaliser. The pieces of a text are the normalized text, cut.
  [[nodiscard]] std::string normalized(std::string_view text) const {
    std::string whole;
    const auto cut = processor.EncodeAsImmutableProto(text);
    for (const auto& piece : cut.pieces()) {
      if (processor.IsByte(narrow<int>(piece.id())))  // "<0x0A>"
        whole += std::bit_cast<char>(narrow<std::uint8_t>(std::stoi(piece.piece().substr(3, 2), nullptr, 16)));
      else
        whole += piece.piece();
    }
    return whole;
  }
};

SubwordSampler::SubwordSampler(const Tokenizer& tokenizer, const tokenizer::Sampling& how)
    : tokenizer_(tokenizer), how_(how) {
  if (tokenizer.kind() == TokenizerKind::table)
    throw_error(Fault::config, "the transform subword", "a tokenizer with one model", "a piece table",
                "remove alpha, or the transform");
  if (tokenizer.kind() == TokenizerKind::sentence_piece)
    sentencepiece_ = std::make_unique<const OfSentencePiece>(tokenizer.model_bytes(), how);
}
SubwordSampler::SubwordSampler(SubwordSampler&&) noexcept = default;
SubwordSampler::~SubwordSampler() = default;

bool SubwordSampler::is_bpe() const {
  return sentencepiece_ ? sentencepiece_->pieces.is_bpe() : tokenizer_.pipeline()->is_bpe();
}

std::vector<std::int32_t> SubwordSampler::encode(std::string_view text, RandomStream& random) const {
  if (!sentencepiece_) return tokenizer_.pipeline()->sample(text, how_, random);
  return sentencepiece_->pieces.encode(sentencepiece_->normalized(text), random);
}

}  // namespace argosy::data
