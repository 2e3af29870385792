#include "plan/data_plan.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "data/sampler.hpp"

namespace argosy::plan {
namespace {

constexpr double fill = 0.98;  // of a step of pairs: what is not padding

/// Examples that a step draws.
double draws_of_step(const RunConfig& config, const data::StepSizes& sizes, const data::MeanDraw& mean) {
  const auto size = static_cast<double>(sizes.global_size);
  const bool by_rows = config.batch.unit == data::BatchUnit::examples;
  const auto rounding =
      static_cast<double>(batch_of(config).width_multiple.value_or(1) - 1);  // of both sides, on average
  if (!is_language_model(config)) return by_rows ? size : fill * size / (mean.src_tokens + mean.tgt_tokens + rounding);
  const auto width = static_cast<double>(config.batch.sequence_length);
  const double rows = by_rows ? size : size / width, positions = mean.tgt_tokens + 1;  // the start token
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
    drawn.push_back({.size = counts.examples(),
                     .src_tokens = static_cast<double>(counts.src_tokens),
                     .tgt_tokens = static_cast<double>(counts.tgt_tokens),
                     .weight = corpora[c].weight});
  }
  const std::vector<double> shares = data::shares_of_draws(drawn, config.data.temperature);
  const data::MeanDraw mean = data::mean_draw(drawn, shares);
  for (std::size_t c = 0; c < plan.corpora.size(); ++c) plan.corpora[c].share = shares[c];
  const double draws = draws_of_step(config, sizes, mean);
  plan.steps_per_epoch = examples / draws;
  const auto [length, unit] = config.schedule.length;
  plan.steps = unit == config::Period::Unit::step        ? length
               : unit == config::Period::Unit::tgt_token ? length / (draws * mean.tgt_tokens)
                                                         : length * plan.steps_per_epoch;
  plan.epochs = plan.steps / plan.steps_per_epoch;
  for (CorpusPlan& corpus : plan.corpora)
    if (corpus.examples > 0) corpus.passes = plan.steps * draws * corpus.share / corpus.examples;
  return plan;
}

}  // namespace argosy::plan
