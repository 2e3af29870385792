#include "train/validator.hpp"

#include <algorithm>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>
#include <map>
#include <utility>

#include "config/describe.hpp"
#include "decode/translate.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

constexpr std::size_t least_for_collapse = 8;  // translations that allow a warning

}  // namespace

Validator::Validator(RunParts& run, const json::object& stored)
    : run_(run),
      translated_(plan::translated_lines_of(run.config.validation)),
      history_(run.config.validation, stored) {
  if (const json::value* const advice = stored.if_contains("advice")) {
    advice_ = ValidationAdvice(json::value_to<ValidationAdvice::Left>(advice->at("left")));
    trained_nll_ = advice->at("nll").to_number<double>();
    trained_tokens_ = advice->at("tgt_tokens").to_number<double>();
  }
  if (run.config.validation.command && run.context.is_root())
    command_.emplace(*run.config.validation.command, run.context.files, run.store->run_dir(), run.context.log,
                     run.context.clock);
}

json::object Validator::state(std::int64_t step) const {
  json::object state = history_.state(step);
  state["advice"] = {
      {"left", json::value_from(advice_.left())}, {"nll", trained_nll_}, {"tgt_tokens", trained_tokens_}};
  return state;
}

void Validator::trained(double nll_sum, std::int64_t tgt_tokens) {
  trained_nll_ += nll_sum;
  trained_tokens_ += static_cast<double>(tgt_tokens);
}

std::optional<bool> Validator::validate(RunState& state, const EvaluatedModel& model, const std::vector<double>& passes,
                                        Progress& progress) {
  std::vector<Evaluated> all;
  if (!evaluate_all(false, state.step, model, all)) return std::nullopt;
  if (run_.config.optimizer.ema > 0) {
    run_.buffers->swap_ema();  // no save reads the masters now: the last update waited for the copy
    const bool done = evaluate_all(true, state.step, model, all);
    run_.buffers->swap_ema();
    if (!done) return std::nullopt;
  }
  state.owes_validation = false;
  bool improved = false;
  for (const Evaluated& each : all) {
    report(each, state, progress);
    const auto& [set, of_mean, evaluation] = each;
    if (of_mean || &set != &run_.sets.front()) continue;
    if (state.best_step == 0 || evaluation.loss() < state.best_loss) {
      state.best_loss = evaluation.loss();
      state.best_step = state.step;
    }
    std::map<plan::Metric, double> values;
    for (const plan::Metric metric : run_.config.validation.metrics) values[metric] = evaluation.value_of(metric);
    advise_on_losses(set.name, evaluation.loss(), state, passes);
    improved = history_.take(state.step, values);
  }
  return improved;
}

/// False: a rank wants to stop.
bool Validator::evaluate_all(bool of_mean, std::int64_t step, const EvaluatedModel& model,
                             std::vector<Evaluated>& all) const {
  const std::int64_t lines = std::max(translated_.samples, translated_.collapse ? lines_for_collapse : 0);
  for (const EvaluationSet& set : run_.sets) {
    std::optional<Evaluation> evaluation =
        evaluate(run_.context, model, *run_.tokenizer, set, run_.config.validation.metrics, lines);
    if (!evaluation) {
      run_.context.log.info("stopping in the validation after step {}: {}", step, run_.stop->reason());
      return false;
    }
    all.push_back({set, of_mean, std::move(*evaluation)});
  }
  return true;
}

void Validator::report(const Evaluated& evaluated, RunState& state, Progress& progress) {
  const auto& [set, of_mean, evaluation] = evaluated;
  const std::vector<plan::Metric>& metrics = run_.config.validation.metrics;
  json::object figures;
  telemetry::ValidationRecord record{.step = state.step, .set = set.name + (of_mean ? "/ema" : ""), .figures = {}};
  record.languages = set.languages;
  const std::map<std::string, std::string> signatures = decode::score_signatures();
  for (const plan::Metric metric : metrics) {
    const std::string metric_name(config::to_json(metric).as_string());
    record.figures.push_back({metric_name, evaluation.value_of(metric)});
    if (const auto found = signatures.find(metric_name); found != signatures.end()) record.signatures.insert(*found);
    figures[metric_name] = evaluation.value_of(metric);
  }
  add_translations(set, of_mean, evaluation.translations, record);
  progress.add_validation(record);
  state.metrics[record.set] = std::move(figures);
}

/// Puts samples into the record. Looks for signs of a collapse in the first lines of the first set, and warns of those
/// of the weights, not of their mean.
void Validator::add_translations(const EvaluationSet& set, bool of_mean, const std::vector<std::string>& translations,
                                 telemetry::ValidationRecord& record) {
  record.samples = samples_of(set, translations, translated_.samples);
  if (!translated_.collapse || translations.empty()) return;
  const data::Tokenizer tokenizer = run_.tokenizer->of(set.languages);
  const decode::Repetition found = repetition_of(tokenizer, translations);
  record.more = {{"distinct", found.distinct}, {"top_piece", found.top_piece}, {"repeating", found.repeating}};
  if (of_mean || &set != &run_.sets.front() || translations.size() < least_for_collapse) return;
  warn(advice_.on_translations(set.name, found, repetition_of(tokenizer, set.text.target)));
}

/// The training loss is that of the steps since the last validation.
void Validator::advise_on_losses(const std::string& set, double loss, const RunState& state,
                                 const std::vector<double>& passes) {
  ValidationFacts facts{.set = set, .loss = loss, .best_loss = state.best_loss, .best_step = state.best_step};
  facts.nll = trained_nll_ / trained_tokens_;
  facts.ends_early = run_.config.validation.early_stop.has_value();
  if (const auto most = std::ranges::max_element(passes); most != passes.end()) {
    facts.passes = *most;
    facts.corpus = run_.shards->corpora()[static_cast<std::size_t>(most - passes.begin())].name;
  }
  trained_nll_ = trained_tokens_ = 0;
  warn(advice_.on_losses(facts));
}

void Validator::warn(const std::vector<std::string>& sentences) const {
  if (!run_.context.is_root()) return;
  for (const std::string& sentence : sentences) run_.context.log.warn("{}", sentence);
}

void Validator::saved(std::int64_t step, bool committed) {
  history_.saved(step, committed);
  if (!committed || !command_) return;
  const Path exported = run_.store->place_of(checkpoint::Kind::export_, step);
  if (run_.context.files.exists(exported)) command_->exported(step, exported);
}

void Validator::poll_command(std::int64_t step, Progress& progress) {
  if (!command_) return;
  if (std::optional<telemetry::ValidationRecord> record = command_->poll()) {
    record->step = step;
    progress.add_validation(*record);
  }
}

void Validator::finish_command(std::int64_t step, bool stopped, Progress& progress) {
  constexpr double poll_s = 0.2;
  if (!run_.config.validation.command) return;
  const auto is_running = [&] { return command_ && command_->is_running(); };
  if (is_running() && !stopped) run_.context.log.info("waiting for validation.command");
  while (!stopped && comm::any_of(run_.context.world, is_running() && !run_.stop->wants_to_stop())) {
    run_.context.clock.sleep_s(poll_s);
    poll_command(step, progress);
  }
  if (is_running()) run_.context.log.info("validation.command is not finished, because the run has to stop");
  command_.reset();
}

}  // namespace argosy::train
