#include "soup/recipe.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/describe/enum_to_string.hpp>
#include <cmath>
#include <numbers>
#include <numeric>
#include <tuple>

#include "core/error.hpp"
#include "core/random.hpp"

namespace argosy::soup {
namespace {

[[noreturn]] void refuse(std::string wanted, std::string got, std::string where, std::string remedy,
                         const std::string& claim = "") {
  if (claim.empty()) throw_error(Fault::usage, std::move(where), std::move(wanted), std::move(got), std::move(remedy));
  throw_claim(Fault::usage, claim, std::move(where), std::move(wanted), std::move(got), std::move(remedy));
}

/// Refuses an option that the recipe does not use.
void require_own_options(const Recipe& recipe) {
  const std::tuple<bool, const char*, RecipeType> options[] = {
      {!recipe.weights.empty(), "--weights", RecipeType::weighted},
      {!recipe.by.empty(), "--by", RecipeType::weighted},
      {!recipe.normalize, "--no-normalize", RecipeType::weighted},
      {recipe.last.has_value(), "--last", RecipeType::last_k},
      {recipe.spacing.has_value(), "--spacing", RecipeType::last_k},
      {recipe.decay.has_value(), "--decay", RecipeType::decay},
      {recipe.min_delta.has_value(), "--min-delta", RecipeType::greedy},
      {recipe.bootstrap.has_value(), "--bootstrap", RecipeType::greedy}};
  for (const auto& [is_given, option, type] : options) {
    if (!is_given || type == recipe.type) continue;
    refuse(fmt::format("options of the recipe {}", name_of(recipe.type)), option, option,
           fmt::format("give --recipe {}, or leave {} out", name_of(type), option),
           fmt::format("{} is an option of the recipe {}, not of {}", option, name_of(type), name_of(recipe.type)));
  }
}

/// Turns a metric into a weight: larger for a better value, never negative.
double weight_of(const std::string& metric, double value) {
  if (metric.ends_with("loss") || metric.ends_with("bits_per_byte")) return std::exp(-value);
  if (metric.ends_with("perplexity")) return 1 / value;
  if (metric.ends_with("ter")) return std::exp(-value / 100);
  return value;
}

std::vector<double> weights_by_metric(const std::string& by, std::span<const Candidate> candidates) {
  const bool known = std::ranges::any_of(std::array{"loss", "perplexity", "bits_per_byte", "bleu", "chrf", "ter"},
                                         [&](const char* name) { return by.ends_with(name); });
  if (!known)
    refuse("a metric whose name ends with loss, perplexity, bits_per_byte, bleu, chrf or ter", by, "--by",
           "give such a metric");
  std::vector<double> weights;
  for (const Candidate& candidate : candidates) {
    const auto found = candidate.metrics.find(by);
    if (found == candidate.metrics.end()) {
      std::vector<std::string> names;
      names.reserve(candidate.metrics.size());
      for (const auto& [name, value] : candidate.metrics) names.push_back(name);
      const std::string got = names.empty() ? "no metrics" : fmt::format("{}", fmt::join(names, ", "));
      refuse("the metric " + by, got, candidate.name, "give another metric with --by, or give --weights",
             fmt::format("{} has no metric {} (it has {})", candidate.name, by, got));
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
           "--last", "give a smaller --last or --spacing",
           fmt::format("--last {} needs {} checkpoints at least {} steps apart, and only {} of those given are", count,
                       count, spacing, members.size()));
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
             candidates[order[j]].name, "leave one of them out: the recipe decay orders checkpoints by step",
             fmt::format("{} and {} are both of step {}", candidates[order[j - 1]].name, candidates[order[j]].name,
                         candidates[order[j]].step));
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
    if (!recipe.last)
      refuse("--last K", "none", "the recipe last_k", "give it with --last",
             "the recipe last_k needs the number of checkpoints");
    const std::int64_t spacing = recipe.spacing.value_or(0);
    if (spacing < 0) refuse("0 or more steps", std::to_string(spacing), "--spacing", "correct it");
    std::vector<std::size_t> members = newest(*recipe.last, spacing, candidates);
    mixture = uniform_mixture(members.size());
    mixture.members = std::move(members);
  }
  if (mixture.members.size() < 2)
    refuse("at least two checkpoints", std::to_string(mixture.members.size()), "CKPT",
           "give several, as in checkpoints/*",
           fmt::format("a soup needs at least two checkpoints, got {}", mixture.members.size()));
  if (recipe.type == RecipeType::weighted) mixture.weights = checked_weights(recipe, candidates);
  if (recipe.type == RecipeType::decay)
    mixture.weights = decay_weights(recipe.decay.value_or(Decay::linear), candidates);
  if (recipe.type == RecipeType::weighted || recipe.type == RecipeType::decay) {
    const double sum = std::accumulate(mixture.weights.begin(), mixture.weights.end(), 0.0);
    if (sum == 0 || !std::isfinite(sum))
      refuse("weights with a finite sum other than zero", fmt::format("{}", sum),
             recipe.by.empty() ? "--weights" : "--by", "give other weights");
    mixture.divisor = recipe.normalize ? sum : 1;
  }
  if (recipe.min_delta && !(*recipe.min_delta >= 0))
    refuse("0 or more", fmt::format("{}", *recipe.min_delta), "--min-delta", "correct it");
  if (recipe.bootstrap && !(*recipe.bootstrap >= 0.5 && *recipe.bootstrap < 1))
    refuse("a share of at least 0.5 and less than 1", fmt::format("{}", *recipe.bootstrap), "--bootstrap",
           "correct it");
  if (recipe.bootstrap && recipe.min_delta)
    refuse("either --min-delta or --bootstrap", "both", "the recipe greedy", "give one of them");
  return mixture;
}

double bootstrap_wins(const ValidationLoss& now, const ValidationLoss& with) {
  constexpr int rounds = 1000;
  constexpr std::uint64_t seed = 1;
  const std::size_t count = now.by_batch.size();
  if (count == 0 || with.by_batch.size() != count)
    throw_claim(
        Fault::numeric,
        fmt::format("--bootstrap compares losses of the same batches, but the two models have losses of {} and of "
                    "{} batches",
                    count, with.by_batch.size()),
        "--bootstrap", "losses of the same batches", fmt::format("{} and {} batches", count, with.by_batch.size()),
        "give --min-delta instead");
  RandomStream random{seed, count};
  int wins = 0;
  for (int round = 0; round < rounds; ++round) {
    double gain = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t drawn = random.below(count);
      gain += now.by_batch[drawn] - with.by_batch[drawn];
    }
    wins += gain > 0 ? 1 : 0;
  }
  return static_cast<double>(wins) / rounds;
}

GreedyChoice choose_greedily(std::span<const ValidationLoss> alone, const Accepts& accepts,
                             const std::function<ValidationLoss(const std::vector<std::size_t>&)>& loss_of) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < alone.size(); ++i)
    if (!std::isnan(alone[i].loss)) order.push_back(i);
  if (order.empty())
    throw_claim(Fault::numeric, "the validation loss of every checkpoint is NaN", "--validate",
                "a checkpoint with a validation loss", "NaN for each",
                "check the validation sets, and whether training diverged");
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return alone[i].loss; });
  GreedyChoice choice{.members = {order.front()}, .loss = alone[order.front()]};
  choice.decisions.push_back({order.front(), choice.loss.loss, true});
  for (std::size_t next = 1; next < order.size(); ++next) {
    std::vector<std::size_t> members = choice.members;
    members.insert(std::ranges::upper_bound(members, order[next]), order[next]);
    ValidationLoss with = loss_of(members);
    const bool accepted = !std::isnan(with.loss) && accepts(choice.loss, with);
    choice.decisions.push_back({order[next], with.loss, accepted});
    if (!accepted) continue;
    choice.members = std::move(members);
    choice.loss = std::move(with);
  }
  return choice;
}

}  // namespace argosy::soup
