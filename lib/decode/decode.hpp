#pragma once

#include <cstdint>
#include <vector>

#include "model/inference.hpp"

/// Greedy and beam search with a key/value cache. The search follows the rules that CTranslate2 and transformers share,
/// so exported models give the same strings. A sentence that has ended makes room for the next ones. Results do not
/// depend on how sentences are batched.
namespace argosy::decode {

struct SearchOptions {
  std::int64_t beam = 1;        // 1: greedy
  double length_penalty = 1.0;  // score = log p / length^α, EOS counted
  double patience = 1.0;  // beam search stops at round(beam · patience) finished; α = 0: when the best has finished
  std::int64_t max_length = 512;       // decoding steps; the position table is another limit
  double max_length_factor = 3.0;      // at most this × source length + 10 steps; 0: no such limit
  std::int64_t min_length = 0;         // EOS is not chosen before
  std::int64_t batch_elements = 1024;  // most source ids that are worked on at once, except for a longer sentence
};

struct Hypothesis {
  std::vector<std::int32_t> ids;  // without start and EOS
  double score = 0;               // length-normalised log-probability
};

/// The best hypothesis for each source. For an encoder-decoder, a source is its ids with EOS. For a decoder-only model
/// it is the prompt, and the hypothesis continues it. Dead ids and the start id are never generated; of equal scores
/// the lower id wins. Not collective. Throws Error{usage} for options out of range, Error{data} for a source that is
/// empty or longer than model.max_positions, Error{numeric} when the model gives NaN.
[[nodiscard]] std::vector<Hypothesis> search(model::Inference& model,
                                             const std::vector<std::vector<std::int32_t>>& sources,
                                             const SearchOptions& options);

}  // namespace argosy::decode
