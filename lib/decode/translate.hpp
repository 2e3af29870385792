#pragma once

#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "data/tokenizer.hpp"
#include "decode/decode.hpp"

/// Translates lines of text. Lines are distributed over the ranks by length; every rank gets all results in order.
namespace argosy::decode {

struct Translation {
  std::string text;
  double score = 0;  // length-normalised log-probability; 0 for an empty line
};

/// Translates each line with an encoder-decoder; continues it with a decoder-only model. A line that is empty or white
/// space gives an empty translation. A line feed in a translation becomes a space. first: number of the first line in
/// the text, from 0, for errors. **Collective** over `world`. Throws Error{data}, which names the line, for one longer
/// than model.max_positions, and what search() throws.
[[nodiscard]] std::vector<Translation> translate_lines(const comm::Communicator& world, model::Model& model,
                                                       const data::Tokenizer& tokenizer,
                                                       const std::vector<std::string>& lines,
                                                       const SearchOptions& options, std::uint64_t first = 0);

struct TranslationScores {
  double bleu = 0, chrf = 0;  // 0..100
};
/// Corpus scores of translations, with one reference each. Not collective.
[[nodiscard]] TranslationScores score_translations(const std::vector<Translation>& translations,
                                                   const std::vector<std::string>& references);

}  // namespace argosy::decode
