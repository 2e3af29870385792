#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "model/inference.hpp"

/// Text out of models: greedy and beam search with a key/value cache, and the evaluation of a model over parallel sets.
/// Results do not depend on how sentences are batched or how many ranks share them.
namespace argosy::decode {

struct SearchOptions {
  std::int64_t beam = 1;           // 1: greedy
  double length_penalty = 1.0;     // score = log p / length^α
  double patience = 1.0;
  std::int64_t max_length = 512;
  double max_length_factor = 3.0;  // × source length; at least 10 more
  std::int64_t min_length = 0;
};

struct Hypothesis {
  std::vector<std::int32_t> ids;  // without start; EOS not included
  double score = 0;               // normalised log-probability
};

/// Best hypothesis for each source (ids with EOS). Not collective.
[[nodiscard]] std::vector<Hypothesis> search(model::Model& model, const std::vector<std::vector<std::int32_t>>& sources,
                                             const SearchOptions& options, std::int64_t batch_padded_tokens = 4096);

/// Corpus scores, sacreBLEU's defaults (13a; chrF2), equal to 1e-9.
[[nodiscard]] double bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);
[[nodiscard]] double chrf(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

}  // namespace argosy::decode
