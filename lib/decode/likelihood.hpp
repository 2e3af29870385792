#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "decode/translate.hpp"

/// The log-likelihood of targets that are given, in one pass over each: nothing is searched.
namespace argosy::decode {

struct GivenTarget {
  /// Encoder-decoder: a sentence with EOS. Decoder-only: bos, if there is one, and the context; never empty.
  std::vector<std::int32_t> source;
  /// Encoder-decoder: the translation with EOS. Decoder-only: what continues the context.
  std::vector<std::int32_t> target;
};

struct Likelihood {
  std::vector<float> log_p;  // of each id of the target, after those before it; the softmax is over all live ids
  bool is_greedy = true;     // each id is the most probable one; of equal ones, the lower id
};

/// The likelihood of each target. They do not depend on how targets are batched. batch_elements: most positions of
/// sources and targets that are worked on at once, except for a longer pair. Not collective. Throws Error{data} for
/// more positions than the model has, Error{numeric} when the model gives NaN.
[[nodiscard]] std::vector<Likelihood> likelihoods(model::Inference& model, const std::vector<GivenTarget>& targets,
                                                  std::int64_t batch_elements = 2048);

/// For each id of each target, the position of the source that the decoder attends to most when it predicts the id: the
/// mean over the heads of one layer decides; of equal ones the first. The last id of a source, EOS, does not count. An
/// empty list for a source without other ids. layer: from 0. Encoder-decoder only. Otherwise like likelihoods().
[[nodiscard]] std::vector<std::vector<std::int64_t>> alignments(model::Inference& model,
                                                                const std::vector<GivenTarget>& targets,
                                                                std::int64_t layer, std::int64_t batch_elements = 2048);

struct ScoreOptions {
  bool token_scores = false;                // a field with the log-probability of each piece
  std::optional<std::int64_t> alignment{};  // a last field with Translation::alignment: see TranslateOptions
  bool escapes = false;                     // sources and targets are escaped texts (escapes.hpp)
};

/// Scores part.targets, or, where there are none, what follows the tab in each line. For each line, the text is its
/// log-probability, the same for each piece, the number of pieces, and 1 if greedy search would give them, else 0; with
/// tabs between. Translation::score is the second, log_probability the first. An encoder-decoder's target ends with
/// EOS. A decoder-only model's target is the continuation of a context: the pieces of both together, of which those of
/// the context (without blanks at its end) are no part, as in lm-evaluation-harness. **Collective** over `world`.
/// Throws Error{data}, which names the line, for a line without its tab, for more pieces than model.max_positions, and
/// what likelihoods() throws, and what translate_lines() does for alignments.
[[nodiscard]] std::vector<Translation> score_lines(const comm::Communicator& world, model::Inference& model,
                                                   const data::Tokenizer& tokenizer, const TextPart& part,
                                                   const ScoreOptions& options);

}  // namespace argosy::decode
