#include "train/early_stop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/describe.hpp"

namespace argosy::train {
namespace {

namespace json = boost::json;

std::string name_of(plan::Metric metric) { return boost::describe::enum_to_string(metric, ""); }

/// Whether higher values of a metric are better.
bool rises(plan::Metric metric) { return metric == plan::Metric::bleu || metric == plan::Metric::chrf; }

/// A value that is no number is never better; any number is better than none.
bool is_better(plan::Metric metric, double value, const Best& than, double by = 0) {
  if (std::isnan(value)) return false;
  if (than.step == 0) return true;
  return rises(metric) ? value > than.value + by : value < than.value - by;
}

json::object json_of(const Best& best) { return {{"value", best.value}, {"step", best.step}}; }

Best best_of(const json::value& stored) {
  return {stored.at("value").to_number<double>(), stored.at("step").to_number<std::int64_t>()};
}

}  // namespace

ValidationHistory::ValidationHistory(const plan::ValidationConfig& config, const json::object& state)
    : early_stop_(config.early_stop) {
  if (const json::value* stop = state.if_contains("early_stop");
      stop != nullptr && early_stop_ && stop->at("metric") == config::to_json(early_stop_->metric)) {
    waits_for_better_than_ = best_of(*stop);
    stalled_ = stop->at("stalled").to_number<std::int64_t>();
  }
  const json::value* kept = state.if_contains("kept");
  for (const plan::Metric metric : config.keep_best) {
    const json::value* best = kept == nullptr ? nullptr : kept->as_object().if_contains(name_of(metric));
    kept_[metric].committed = best == nullptr ? Best{} : best_of(*best);
  }
}

bool ValidationHistory::take(std::int64_t step, const std::map<plan::Metric, double>& values) {
  if (early_stop_) {
    const double value = values.at(early_stop_->metric);
    if (is_better(early_stop_->metric, value, waits_for_better_than_, early_stop_->min_delta)) {
      waits_for_better_than_ = {value, step};
      stalled_ = 0;
    } else {
      ++stalled_;
    }
  }
  bool improved = false;
  for (auto& [metric, kept] : kept_) {
    if (!is_better(metric, values.at(metric), kept.mark())) continue;
    kept.waiting.push_back({values.at(metric), step});
    improved = true;
  }
  return improved;
}

void ValidationHistory::saved(std::int64_t step, bool committed) {
  for (auto& [metric, kept] : kept_) {
    const auto found = std::ranges::find(kept.waiting, step, &Best::step);
    if (found == kept.waiting.end()) continue;
    if (committed) kept.committed = *found;
    kept.waiting.erase(committed ? kept.waiting.begin() : found, found + 1);
  }
}

bool ValidationHistory::ends() const { return early_stop_ && stalled_ >= early_stop_->patience; }

std::string ValidationHistory::reason() const {
  const auto& [value, step] = waits_for_better_than_;
  const std::string by = early_stop_->min_delta > 0 ? fmt::format(" by more than {}", early_stop_->min_delta) : "";
  const std::string best = step == 0 ? "been a number" : fmt::format("improved on {:.6g} (step {}){}", value, step, by);
  return fmt::format("{} has not {} in the last {} validations", name_of(early_stop_->metric), best, stalled_);
}

json::object ValidationHistory::state(std::int64_t step) const {
  json::object state;
  if (early_stop_) {
    json::object stop = json_of(waits_for_better_than_);
    stop["metric"] = config::to_json(early_stop_->metric);
    stop["stalled"] = stalled_;
    state["early_stop"] = std::move(stop);
  }
  json::object kept;
  json::array keep;
  for (const auto& [metric, of_metric] : kept_) {
    const auto own = std::ranges::find(of_metric.waiting, step, &Best::step);
    const Best& best = own == of_metric.waiting.end() ? of_metric.committed : *own;
    if (best.step == 0) continue;
    kept[name_of(metric)] = json_of(best);
    keep.emplace_back(best.step);
  }
  if (!kept.empty()) {
    state["kept"] = std::move(kept);
    state["keep"] = std::move(keep);
  }
  return state;
}

}  // namespace argosy::train
