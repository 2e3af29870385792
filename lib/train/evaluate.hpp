#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "data/batch.hpp"
#include "data/loader.hpp"
#include "data/text_pairs.hpp"
#include "data/tokenizer.hpp"
#include "model/model.hpp"
#include "plan/run_config.hpp"

/// The evaluation of a model over held-out sets, apart from the training loop: soups and stored models are judged
/// alike. Sets are dealt over all ranks; sums are added over ranks before any division.
namespace argosy::train {

/// A set and this rank's share of it.
struct EvaluationSet {
  std::string name;
  data::ParallelText text;           // empty for a part of the token shards
  std::vector<data::Batch> batches;  // of this rank
};

/// The sets of `config.validation`; without any, the part `data.split.validation` of the token shards. At most
/// validation.steps batches a rank and set. Not collective. Throws Error{data} for files that are missing or do not
/// match, and for a line that is longer than the model has positions.
[[nodiscard]] std::vector<EvaluationSet> evaluation_sets(const comm::Context& context, const plan::RunConfig& config,
                                                         const data::Tokenizer& tokenizer,
                                                         const data::StepSizes& sizes);

struct Evaluation {
  double nll_sum = 0;  // unsmoothed, over tgt_tokens
  std::int64_t tgt_tokens = 0;
  std::optional<double> bleu, chrf;  // 0..100, of greedy translations
  [[nodiscard]] double loss() const;
  [[nodiscard]] double perplexity() const;
  [[nodiscard]] double value_of(plan::Metric metric) const;
};

/// Σ nll of a batch, unsmoothed. Called equally often on all ranks, with empty batches where one has fewer.
using NllOf = std::function<double(const data::Batch& batch)>;

/// Judges a model by `nll_of`, and by what `model` translates when a metric asks for it: the weights bound to it are
/// whole once all batches have been seen. **Collective** over context.world. Throws Error{data} for a set without
/// loss-bearing tgt_tokens.
[[nodiscard]] Evaluation evaluate(const comm::Context& context, const NllOf& nll_of, model::Model& model,
                                  const data::Tokenizer& tokenizer, const EvaluationSet& set,
                                  const std::vector<plan::Metric>& metrics);

}  // namespace argosy::train
