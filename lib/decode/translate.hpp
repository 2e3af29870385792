#pragma once

#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "data/tokenizer.hpp"
#include "decode/decode.hpp"

/// Text in, text out: lines are dealt over the ranks by length and come back in their order, the same on every rank.
namespace argosy::decode {

struct Translation {
  std::string text;
  double score = 0;  // length-normalised log-probability; 0 for an empty line
};

/// An empty line (or one of white space alone) gives an empty translation. Encoder-decoder: the translation;
/// decoder-only: the continuation. A line feed in a translation becomes a blank. first: where in the text the lines
/// are, from 0. **Collective** over `world`. Throws Error{data} naming a line longer than model.max_positions, and what
/// search() throws.
[[nodiscard]] std::vector<Translation> translate_lines(const comm::Communicator& world, model::Model& model,
                                                       const data::Tokenizer& tokenizer,
                                                       const std::vector<std::string>& lines,
                                                       const SearchOptions& options, std::uint64_t first = 0);

struct TranslationScores {
  double bleu = 0, chrf = 0;  // 0..100
};
/// Corpus scores of translations against references of the same number. Not collective.
[[nodiscard]] TranslationScores score_translations(const std::vector<Translation>& translations,
                                                   const std::vector<std::string>& references);

}  // namespace argosy::decode
