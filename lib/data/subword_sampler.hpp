#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "data/tokenizer.hpp"
#include "tokenizer/sampling.hpp"

/// Text to ids by a segmentation that is drawn at random. Borrows the tokenizer. Immutable, for any number of threads.
namespace argosy::data {

class SubwordSampler {
 public:
  /// Throws Error{config} for a tokenizer of words or characters, which cuts a text in one way only.
  SubwordSampler(const Tokenizer& tokenizer, const tokenizer::Sampling& how);
  SubwordSampler(SubwordSampler&&) noexcept;
  ~SubwordSampler();

  [[nodiscard]] bool is_bpe() const;
  /// As Tokenizer::encode, but for the cuts.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, RandomStream& random) const;

  /// The number of pieces that the text of a piece is cut into, estimated from 64 draws. 1 and 0: it is never cut.
  struct Spread {
    float mean = 1, variance = 0;
  };
  [[nodiscard]] Spread spread(std::int32_t id) const;

 private:
  struct OfSentencePiece;
  const Tokenizer& tokenizer_;
  tokenizer::Sampling how_;
  std::unique_ptr<const OfSentencePiece> sentencepiece_;  // unless the tokenizer is a tokenizer.json
  /// By id, the bits of both numbers; 0: not computed yet. Threads that compute one at once get the same.
  mutable std::vector<std::atomic<std::uint64_t>> spreads_;

  [[nodiscard]] std::int64_t draw_size(std::int32_t id, RandomStream& random) const;
};

}  // namespace argosy::data
