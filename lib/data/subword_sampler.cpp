#include "data/subword_sampler.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
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
  [[nodiscard]] bool is_cut(std::int32_t id) const {
    return !processor.IsControl(id) && !processor.IsUnknown(id) && !processor.IsUnused(id) && !processor.IsByte(id);
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
    : tokenizer_(tokenizer), how_(how), spreads_(static_cast<std::size_t>(tokenizer.vocabulary().pieces)) {
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

SubwordSampler::Spread SubwordSampler::spread(std::int32_t id) const {
  constexpr int draws = 64;
  std::atomic<std::uint64_t>& known = spreads_[static_cast<std::size_t>(id)];
  if (const std::uint64_t bits = known.load(std::memory_order_relaxed); bits != 0) return std::bit_cast<Spread>(bits);
  double sum = 0, squares = 0;
  RandomStream random(0, static_cast<std::uint64_t>(id));
  for (int i = 0; i < draws; ++i) {
    const auto size = static_cast<double>(draw_size(id, random));
    sum += size;
    squares += size * size;
  }
  const double mean = sum / draws;
  const Spread spread{static_cast<float>(mean), static_cast<float>(std::max(0., squares / draws - mean * mean))};
  known.store(std::bit_cast<std::uint64_t>(spread), std::memory_order_relaxed);
  return spread;
}

std::int64_t SubwordSampler::draw_size(std::int32_t id, RandomStream& random) const {
  if (!sentencepiece_) return tokenizer_.pipeline()->sample_size(id, how_, random);
  if (!sentencepiece_->is_cut(id)) return 1;
  return std::ssize(sentencepiece_->pieces.encode(sentencepiece_->processor.IdToPiece(id), random));
}

}  // namespace argosy::data
