#include "data/subword_sampler.hpp"

#include <sentencepiece_processor.h>

#include "core/error.hpp"
#include "tokenizer/piece_sampler.hpp"
#include "tokenizer/pipeline.hpp"

namespace argosy::data {

struct SubwordSampler::OfSentencePiece {
  sentencepiece::SentencePieceProcessor normalizer;
  tokenizer::PieceSampler pieces;

  explicit OfSentencePiece(const std::string& model) : pieces(tokenizer::Pieces{model}) {
    const auto status = normalizer.LoadFromSerializedProto(tokenizer::only_normalization(model));
    ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
  }
  [[nodiscard]] std::string normalized(std::string_view text) const {
    std::vector<std::string> words;
    const auto status = normalizer.Encode(text, &words);
    ARGOSY_CHECK(status.ok(), "SentencePiece: {}", status.ToString());
    std::string whole;
    for (const std::string& word : words) whole += word;
    return whole;
  }
};

SubwordSampler::SubwordSampler(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  if (!tokenizer.is_json()) sentencepiece_ = std::make_unique<const OfSentencePiece>(tokenizer.model_bytes());
}
SubwordSampler::SubwordSampler(SubwordSampler&&) noexcept = default;
SubwordSampler::~SubwordSampler() = default;

bool SubwordSampler::is_bpe() const {
  return sentencepiece_ ? sentencepiece_->pieces.is_bpe() : tokenizer_.pipeline()->is_bpe();
}

std::vector<std::int32_t> SubwordSampler::encode(std::string_view text, const tokenizer::Sampling& how,
                                                 RandomStream& random) const {
  if (!sentencepiece_) return tokenizer_.pipeline()->sample(text, how, random);
  return sentencepiece_->pieces.encode(sentencepiece_->normalized(text), how, random);
}

}  // namespace argosy::data
