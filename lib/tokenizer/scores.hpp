#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The log-probabilities of a unigram model with the bits that the tokenizers library gives them. Its JSON reader and
/// Boost's both round numbers, each in its own way; two segmentations of equal probability differ in the last bit.
namespace argosy::tokenizer {

/// The numbers of `model.vocab` in a valid JSON text, in order: the last of each pair.
[[nodiscard]] std::vector<double> unigram_scores(std::string_view json);
/// The same as the text spells them.
[[nodiscard]] std::vector<std::string> spelled_scores(std::string_view json);

/// A JSON number as serde_json reads it: its digits, as far as 64 bits hold them, times or divided by a power of ten.
[[nodiscard]] double as_serde_json(std::string_view number);

}  // namespace argosy::tokenizer
