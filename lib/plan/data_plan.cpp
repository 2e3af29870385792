#include "plan/data_plan.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "data/sampler.hpp"

namespace argosy::plan {
namespace {

constexpr double fill = 0.98;  // of a step of pairs: what is not padding

/// Examples that a step draws, by the mean lengths of what is drawn.
double draws_of_step(const RunConfig& config, const data::StepSizes& sizes, double source, double target) {
  const auto size = static_cast<double>(sizes.global_size);
  const bool by_rows = config.batch.unit == data::BatchUnit::examples;
  const auto rounding =
      static_cast<double>(batch_of(config).width_multiple.value_or(1) - 1);  // of both sides, on average
  if (!is_language_model(config)) return by_rows ? size : fill * size / (source + target + rounding);
  const auto width = static_cast<double>(config.batch.sequence_length);
  const double rows = by_rows ? size : size / width, positions = target + 1;  // the start token
  return config.batch.packing.value_or(true) ? rows * width / positions : rows / std::max(1.0, positions / width);
}

}  // namespace

std::optional<DataPlan> plan_data(const RunConfig& config, const data::StepSizes& sizes,
                                  const data::ShardIndex& index) {
  const std::vector<data::CorpusConfig>& corpora = config.data.corpora;
  const bool alike =
      std::ranges::equal(index.corpora, corpora, {}, &data::ShardIndex::Corpus::name, &data::CorpusConfig::name);
  if (!alike) return std::nullopt;
  const double part = config.data.split ? config.data.split->train : 1;
  DataPlan plan;
  std::vector<data::DrawnCorpus> drawn;
  double examples = 0;
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    const data::ShardIndex::Corpus& counts = index.corpora[c];
    plan.corpora.push_back({.name = counts.name,
                            .examples = part * static_cast<double>(counts.examples()),
                            .src_tokens = part * static_cast<double>(counts.src_tokens),
                            .tgt_tokens = part * static_cast<double>(counts.tgt_tokens)});
    const CorpusPlan& corpus = plan.corpora.back();
    examples += corpus.examples;
    drawn.push_back({.size = counts.examples(), .tgt_tokens = corpus.tgt_tokens, .weight = corpora[c].weight});
  }
  const data::Sampler sampler{{.temperature = config.data.temperature}, std::move(drawn)};
  double source = 0, target = 0;  // of what is drawn, on average
  for (std::size_t c = 0; c < plan.corpora.size(); ++c) {
    CorpusPlan& corpus = plan.corpora[c];
    corpus.share = sampler.shares()[c];
    if (corpus.examples == 0) continue;
    source += corpus.share * corpus.src_tokens / corpus.examples;
    target += corpus.share * corpus.tgt_tokens / corpus.examples;
  }
  const double draws = draws_of_step(config, sizes, source, target);
  plan.steps_per_epoch = examples / draws;
  const auto [length, unit] = config.schedule.length;
  plan.steps = unit == config::Period::Unit::step        ? length
               : unit == config::Period::Unit::tgt_token ? length / (draws * target)
                                                         : length * plan.steps_per_epoch;
  plan.epochs = plan.steps / plan.steps_per_epoch;
  for (CorpusPlan& corpus : plan.corpora)
    if (corpus.examples > 0) corpus.passes = plan.steps * draws * corpus.share / corpus.examples;
  return plan;
}

}  // namespace argosy::plan
