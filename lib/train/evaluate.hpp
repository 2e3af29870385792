#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/run_main.hpp"
#include "data/batch.hpp"
#include "data/corpora.hpp"
#include "data/loader.hpp"
#include "data/text_pairs.hpp"
#include "data/tokenizer.hpp"
#include "decode/repetition.hpp"
#include "decode/translate.hpp"
#include "model/model.hpp"
#include "plan/placement.hpp"
#include "plan/run_config.hpp"
#include "telemetry/sink.hpp"

/// Evaluates a model on held-out sets, independently of the training loop: soups and stored models are evaluated in the
/// same way. Each rank evaluates a share of a set; sums are added over the ranks before any division.
namespace argosy::train {

/// A set and this rank's share of it.
struct EvaluationSet {
  std::string name;
  data::ParallelText text;               // empty for a part of the token shards
  std::vector<data::Batch> batches;      // of this rank
  std::uint32_t route = 0;               // through the model, of all batches
  std::vector<std::string> languages{};  // of its corpus, where the configuration names it
  std::vector<int> ranks{};              // canonical, that evaluate it: those of its route; empty: all
};

/// The sets of `config.validation`; if it names none, the part `data.split.validation` of the token shards: of all
/// corpora one set, and of a model with tasks one for each. A rank has
/// at most validation.steps batches of a set. corpora: as data::online_corpora gives them. Not collective. Throws
/// Error{data} if a file is missing, if two files do not match, or if a line is longer than model.max_positions.
/// Their route is 0. ranks: by set, EvaluationSet::ranks; empty: all ranks evaluate all sets.
[[nodiscard]] std::vector<EvaluationSet> evaluation_sets(const comm::Context& context, const plan::RunConfig& config,
                                                         const data::Tokenizer& tokenizer, const data::StepSizes& sizes,
                                                         std::span<const data::CountedCorpus> corpora,
                                                         const std::vector<std::vector<int>>& ranks = {});

/// The routes of the corpora of config.validation.sets, or of data.split, by set; empty: the model has one. Throws
/// Error{config} for a set without a task of the model.
[[nodiscard]] std::vector<std::uint32_t> routes_of_sets(const plan::RunConfig& config, const spec::ModelSpec& spec);
/// Gives the sets of `config.validation` these routes.
void set_routes(std::vector<EvaluationSet>& sets, const plan::RunConfig& config, const spec::ModelSpec& spec);

struct Evaluation {
  double nll_sum = 0;  // unsmoothed, over tgt_tokens
  std::int64_t tgt_tokens = 0;
  std::int64_t bytes = 0;  // of the text of tgt_tokens; counted for Metric::bits_per_byte alone
  std::optional<decode::TranslationScores> scores;  // of greedy translations
  std::vector<std::string> translations{};          // of the first lines; greedy
  [[nodiscard]] double loss() const;
  [[nodiscard]] double perplexity() const;
  [[nodiscard]] double bits_per_byte() const;
  [[nodiscard]] double value_of(plan::Metric metric) const;
};

/// Σ nll of a batch, unsmoothed. All ranks call it equally often and for the same route (data::Batch::route); a rank
/// that has fewer batches passes empty ones.
using NllOf = std::function<double(const data::Batch& batch)>;

/// The first `count` lines of a set of pairs with what the model makes of them.
[[nodiscard]] std::vector<telemetry::Sample> samples_of(const EvaluationSet& set,
                                                        const std::vector<std::string>& translations,
                                                        std::int64_t count);

/// Of the pieces of the first texts.
inline constexpr std::int64_t lines_for_collapse = 64;
[[nodiscard]] decode::Repetition repetition_of(const data::Tokenizer& tokenizer, std::span<const std::string> texts);

using UseModel = std::function<void(model::Model&)>;

/// Calls `use` with the model of a route, whose parameters are those of `whole`.
void with_route(model::Model& whole, std::size_t route, const UseModel& use);

/// Of a model that this rank has whole, on a CPU. Not collective.
[[nodiscard]] double nll_of(const model::Model& model, const data::Batch& batch);

struct EvaluatedModel {
  NllOf nll_of;
  /// Calls `use` with the model of a route while this rank has all its weights; not on ranks that do not compute the
  /// route. All ranks call it together, and `use` fails on all of these or on none.
  std::function<void(std::size_t route, const UseModel& use)> with_whole;
  /// The ranks of a route, where they are not all ranks and this is one of them.
  std::function<const comm::Communicator&(std::size_t route)> ranks_of{};
  /// Whether one of these ranks wants to stop. **Collective** over them. Empty: none ever does.
  std::function<bool(const comm::Communicator& ranks)> stops{};
};

/// Evaluates a model by its loss, and by its translations if a metric needs them. Translates at least the first `lines`
/// lines of a set of pairs. nullopt: a rank wants to stop, which is asked before each batch and after some lines.
/// **Collective** over context.world. Throws Error{data} for a set without loss-bearing tgt_tokens.
[[nodiscard]] std::optional<Evaluation> evaluate(const comm::Context& context, const EvaluatedModel& model,
                                                 const data::Tokenizer& tokenizer, const EvaluationSet& set,
                                                 const std::vector<plan::Metric>& metrics, std::int64_t lines = 0);

}  // namespace argosy::train
