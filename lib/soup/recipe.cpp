#include "soup/recipe.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/describe/enum_to_string.hpp>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/error.hpp"

namespace argosy::soup {
namespace {

[[noreturn]] void refuse(std::string wanted, std::string got, std::string where, std::string remedy) {
  throw Error{
      Fault::usage,
      {.wanted = std::move(wanted), .got = std::move(got), .where = std::move(where), .remedy = std::move(remedy)}};
}

/// No option is silently ignored.
void require_own_options(const Recipe& recipe) {
  const std::pair<bool, std::pair<const char*, RecipeType>> given[] = {
      {!recipe.weights.empty(), {"--weights", RecipeType::weighted}},
      {!recipe.by.empty(), {"--by", RecipeType::weighted}},
      {!recipe.normalize, {"--no-normalize", RecipeType::weighted}},
      {recipe.last.has_value(), {"--last", RecipeType::last_k}},
      {recipe.spacing.has_value(), {"--spacing", RecipeType::last_k}},
      {recipe.decay.has_value(), {"--decay", RecipeType::decay}},
      {recipe.min_delta.has_value(), {"--min-delta", RecipeType::greedy}},
      {recipe.bootstrap.has_value(), {"--bootstrap", RecipeType::greedy}}};
  for (const auto& [is_given, option] : given) {
    if (is_given && option.second != recipe.type) {
      refuse(fmt::format("options of the recipe {}", name_of(recipe.type)), option.first, "the command line",
             fmt::format("say --recipe {}, or leave {} out", name_of(option.second), option.first));
    }
  }
}

/// A metric as a weight: larger is better, and never negative.
double weight_of(const std::string& metric, double value) {
  if (metric.ends_with("loss")) return std::exp(-value);
  if (metric.ends_with("perplexity")) return 1 / value;
  return value;
}

std::vector<double> weights_by_metric(const std::string& by, std::span<const Candidate> candidates) {
  const bool known = std::ranges::any_of(std::array{"loss", "perplexity", "bleu", "chrf"},
                                         [&](const char* name) { return by.ends_with(name); });
  if (!known) refuse("a metric that is a loss, perplexity, bleu or chrf", by, "--by", "name one of those");
  std::vector<double> weights;
  for (const Candidate& candidate : candidates) {
    const auto found = candidate.metrics.find(by);
    if (found == candidate.metrics.end()) {
      std::vector<std::string> names;
      names.reserve(candidate.metrics.size());
      for (const auto& [name, value] : candidate.metrics) names.push_back(name);
      refuse(fmt::format("the metric {}", by),
             names.empty() ? "none at all" : fmt::format("{}", fmt::join(names, ", ")), candidate.name,
             "name another with --by, or give --weights");
    }
    weights.push_back(weight_of(by, found->second));
  }
  return weights;
}

std::vector<double> checked_weights(const Recipe& recipe, std::span<const Candidate> candidates) {
  if (recipe.weights.empty() == recipe.by.empty())
    refuse("either --weights or --by METRIC", recipe.by.empty() ? "neither" : "both", "the recipe weighted",
           "give one of them");
  std::vector<double> weights = recipe.by.empty() ? recipe.weights : weights_by_metric(recipe.by, candidates);
  if (weights.size() != candidates.size())
    refuse(fmt::format("{} weights, one for each checkpoint", candidates.size()), std::to_string(weights.size()),
           "--weights", "give one for each checkpoint, in their order");
  return weights;
}

/// Numbers of the candidates by step; of equal steps the one given first comes first.
std::vector<std::size_t> by_step(std::span<const Candidate> candidates) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return candidates[i].step; });
  return order;
}

std::vector<std::size_t> newest(std::int64_t count, std::int64_t spacing, std::span<const Candidate> candidates) {
  std::vector<std::size_t> order = by_step(candidates), members;
  for (auto at = order.rbegin(); at != order.rend() && std::ssize(members) < count; ++at) {
    if (members.empty() || candidates[members.back()].step - candidates[*at].step >= spacing) members.push_back(*at);
  }
  if (std::ssize(members) < count)
    refuse(fmt::format("{} checkpoints at least {} steps apart", count, spacing), std::to_string(members.size()),
           "the checkpoints named", "ask for fewer with --last, or for a smaller --spacing");
  std::ranges::sort(members);
  return members;
}

double rate_at(Decay decay, double t) {
  if (decay == Decay::cosine) return (1 + std::cos(std::numbers::pi * t)) / 2;
  return decay == Decay::linear ? 1 - t : 1 - std::sqrt(t);
}

std::vector<double> decay_weights(Decay decay, std::span<const Candidate> candidates) {
  const std::vector<std::size_t> order = by_step(candidates);
  std::vector<double> weights(candidates.size());
  const auto count = static_cast<double>(order.size());
  for (std::size_t j = 0; j < order.size(); ++j) {
    if (j > 0 && candidates[order[j]].step == candidates[order[j - 1]].step)
      refuse("checkpoints of different steps", fmt::format("two of step {}", candidates[order[j]].step),
             candidates[order[j]].name, "leave one out: a decay has an order");
    const auto at = static_cast<double>(j);
    weights[order[j]] = rate_at(decay, at / count) - rate_at(decay, (at + 1) / count);
  }
  return weights;
}

}  // namespace

std::string name_of(RecipeType type) { return boost::describe::enum_to_string(type, ""); }
std::string name_of(Moments moments) { return boost::describe::enum_to_string(moments, ""); }

Mixture uniform_mixture(std::size_t count) {
  Mixture mixture{.weights = std::vector<double>(count, 1.0), .divisor = static_cast<double>(count)};
  mixture.members.resize(count);
  std::iota(mixture.members.begin(), mixture.members.end(), std::size_t{0});
  return mixture;
}

Mixture mixture_of(const Recipe& recipe, std::span<const Candidate> candidates) {
  require_own_options(recipe);
  Mixture mixture = uniform_mixture(candidates.size());
  if (recipe.type == RecipeType::last_k) {
    if (!recipe.last) refuse("--last K", "none", "the recipe last_k", "say how many of the newest to take");
    const std::int64_t spacing = recipe.spacing.value_or(0);
    if (spacing < 0)
      refuse("a --spacing of 0 or more steps", std::to_string(spacing), "the command line", "correct it");
    std::vector<std::size_t> members = newest(*recipe.last, spacing, candidates);
    mixture = uniform_mixture(members.size());
    mixture.members = std::move(members);
  }
  if (mixture.members.size() < 2)
    refuse("at least two checkpoints", std::to_string(mixture.members.size()), "the command line",
           "name the directories, as in checkpoints/*");
  if (recipe.type == RecipeType::weighted) mixture.weights = checked_weights(recipe, candidates);
  if (recipe.type == RecipeType::decay)
    mixture.weights = decay_weights(recipe.decay.value_or(Decay::linear), candidates);
  if (recipe.type == RecipeType::weighted || recipe.type == RecipeType::decay) {
    const double sum = std::accumulate(mixture.weights.begin(), mixture.weights.end(), 0.0);
    if (sum == 0 || !std::isfinite(sum))
      refuse("weights with a finite sum other than zero", fmt::format("{}", sum), "the weights", "correct them");
    mixture.divisor = recipe.normalize ? sum : 1;
  }
  if (recipe.min_delta && !(*recipe.min_delta >= 0))
    refuse("a --min-delta of 0 or more", fmt::format("{}", *recipe.min_delta), "the command line", "correct it");
  if (recipe.bootstrap && !(*recipe.bootstrap >= 0.5 && *recipe.bootstrap < 1))
    refuse("a --bootstrap from 0.5 to below 1", fmt::format("{}", *recipe.bootstrap), "the command line", "correct it");
  if (recipe.bootstrap && recipe.min_delta)
    refuse("either --min-delta or --bootstrap", "both", "the command line", "give one of them");
  return mixture;
}

}  // namespace argosy::soup
