#pragma once

#include <boost/describe/enum.hpp>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/inference.hpp"

/// Greedy search, beam search and sampling with a key/value cache. The searches follow the rules that CTranslate2 and
/// transformers share, so exported models give the same strings. A sentence that has ended makes room for the next
/// ones. Results do not depend on how sentences are batched.
namespace argosy::decode {

/// What α makes of a length: power (CTranslate2, Marian, transformers) is length^α, wu is ((5 + length) / 6)^α
/// (Wu et al., 2016, of "GNMT").
enum class LengthPenalty { power, wu };
BOOST_DESCRIBE_ENUM(LengthPenalty, power, wu)

struct SearchOptions {
  std::int64_t beam = 1;   // 1: greedy; with `sample`, 1
  std::int64_t nbest = 1;  // hypotheses that are returned; at most `beam`, or the number of independent samples
  // score = (log p - word_penalty · length) / penalty of the length; EOS and a prefix are counted in the length
  double length_penalty = 1.0;  // α
  LengthPenalty length_penalty_type = LengthPenalty::power;
  double word_penalty = 0.0;  // for each id, as in Marian
  double patience =
      1.0;  // beam search stops at round(beam · patience) finished; without penalties: when the best has finished
  // Steps count the ids of a prefix, too. At least one id follows the prefix, also where no steps are left.
  std::int64_t max_length = 512;   // decoding steps; the position table is another limit
  double max_length_factor = 3.0;  // at most this × source length + 10 steps; 0: no such limit
  std::int64_t min_length = 0;     // EOS is not chosen before
  // The penalties see the hypothesis and its prefix; with a decoder-only model they see the prompt too.
  std::int64_t no_repeat_ngram = 0;  // no sequence of this many ids comes twice; 0: off
  double repetition_penalty = 1.0;   // θ: the logit z of an id that is there already becomes z/θ if z > 0, else z·θ
  // Draws each id from softmax(logits / temperature), cut to the top_k most probable ids, then to the smallest set of
  // the most probable ids whose probabilities add up to top_p (Holtzman et al., 2020).
  bool sample = false;
  double temperature = 1.0;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1.0;      // 1: all
  std::uint64_t seed = 0;  // a draw is a function of it, Source::line, the position and the number of the sample
  // Whether a hypothesis ends with its newest id, as with EOS; absent: only EOS ends it.
  std::function<bool(std::span<const std::int32_t> ids)> stop{};
  std::int64_t batch_elements = 1024;  // most source ids that are worked on at once, except for a longer sentence
};

/// What a search starts from.
struct Source {
  /// For an encoder-decoder, the ids of a sentence with EOS. For a decoder-only model the prompt, which is continued.
  std::vector<std::int32_t> ids;
  /// Hypotheses begin with these ids, which count as certain. Without start and EOS. Encoder-decoder only.
  std::vector<std::int32_t> prefix{};
  std::uint64_t line = 0;  // for sampling
};

struct Hypothesis {
  std::vector<std::int32_t> ids;  // without start and EOS, with the prefix
  double score = 0;               // length-normalised log-probability
  /// Of the ids after the prefix, and of EOS. Excluded ids have no part of it, and the penalties change it;
  /// temperature, top_k and top_p do not.
  double log_probability = 0;
};

/// The best hypotheses for each source, best first, or its samples in the order in which they were drawn. There are
/// options.nbest, or fewer if there is not so much to say. Dead ids and the start id are never generated; of equal
/// scores the lower id wins. Not collective. Throws Error{usage} for options out of range, Error{data} for a source
/// that is empty or longer than model.max_positions and a prefix that leaves no position, Error{numeric} when the model
/// gives NaN.
[[nodiscard]] std::vector<std::vector<Hypothesis>> search(model::Inference& model, const std::vector<Source>& sources,
                                                          const SearchOptions& options);

}  // namespace argosy::decode
