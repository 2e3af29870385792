#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "config/config.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::data {

/// Text to ids by the tokenizer. With `alpha` above 0 training draws a segmentation each time: a unigram model among
/// all, or among the `nbest` best ones, with p ∝ exp(alpha · score) (Kudo, arXiv:1804.10959); BPE by passing over each
/// merge with probability alpha (Provilkov et al., arXiv:1910.13267). `growth` is how much longer than the best one it
/// may be; without a value, by mean and deviation of the number of pieces that each piece's text becomes.
struct Subword {
  static constexpr const char* type = "subword";
  static constexpr Stage stage = Stage::tokenize;
  double alpha = 0;
  std::int64_t nbest = -1;
  std::optional<double> growth{};

  [[nodiscard]] std::unique_ptr<const Transform> make(const Materials& materials) const;
};
BOOST_DESCRIBE_STRUCT(Subword, (), (alpha, nbest, growth))
std::span<const config::KeyText> key_texts(const Subword&);
void validate(const Subword&, config::Problems&);

}  // namespace argosy::data
