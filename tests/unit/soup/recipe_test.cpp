#include "soup/recipe.hpp"

#include <cmath>
#include <numbers>
#include <numeric>

#include "support/refusal.hpp"

namespace argosy::soup {
namespace {

std::vector<Candidate> at_steps(const std::vector<std::int64_t>& steps) {
  std::vector<Candidate> candidates;
  for (const std::int64_t step : steps) candidates.push_back({.name = std::to_string(step), .step = step});
  return candidates;
}
std::vector<double> shares(const Mixture& mixture) {
  std::vector<double> shares;
  for (const double weight : mixture.weights) shares.push_back(weight / mixture.divisor);
  return shares;
}
std::string refusal_of(const Recipe& recipe, const std::vector<Candidate>& candidates) {
  return test::refusal(Fault::usage, [&] { static_cast<void>(mixture_of(recipe, candidates)); });
}
using Members = std::vector<std::size_t>;

TEST(Recipes, UniformTakesAllAlike) {
  const Mixture mixture = mixture_of({}, at_steps({3, 1, 2}));
  EXPECT_EQ(mixture.members, (Members{0, 1, 2}));
  EXPECT_EQ(mixture.weights, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(mixture.divisor, 3);
}

TEST(Recipes, WeightedDividesByTheSumUnlessTold) {
  Recipe recipe{.type = RecipeType::weighted, .weights = {1, 2, -0.5}};
  EXPECT_EQ(mixture_of(recipe, at_steps({1, 2, 3})).divisor, 2.5);
  recipe.normalize = false;
  EXPECT_EQ(mixture_of(recipe, at_steps({1, 2, 3})).divisor, 1);
  EXPECT_EQ(mixture_of(recipe, at_steps({1, 2, 3})).weights, recipe.weights);
}

TEST(Recipes, WeightedByAMetricFavoursTheBetter) {
  std::vector<Candidate> candidates = at_steps({1, 2});
  candidates[0].metrics = {{"dev.loss", 1.0},
                           {"dev.perplexity", std::exp(1.0)},
                           {"dev.bits_per_byte", 1.0},
                           {"dev.bleu", 30},
                           {"dev.ter", 50}};
  candidates[1].metrics = {{"dev.loss", 2.0},
                           {"dev.perplexity", std::exp(2.0)},
                           {"dev.bits_per_byte", 2.0},
                           {"dev.bleu", 10},
                           {"dev.ter", 150}};
  const auto by = [&](const std::string& metric) {
    return shares(mixture_of({.type = RecipeType::weighted, .by = metric}, candidates));
  };
  EXPECT_NEAR(by("dev.loss")[0], 1 / (1 + std::exp(-1.0)), 1e-15);
  EXPECT_NEAR(by("dev.perplexity")[0], by("dev.loss")[0], 1e-15);
  EXPECT_NEAR(by("dev.bits_per_byte")[0], by("dev.loss")[0], 1e-15);
  EXPECT_NEAR(by("dev.bleu")[0], 0.75, 1e-15);
  EXPECT_NEAR(by("dev.ter")[0], by("dev.loss")[0], 1e-15) << "of TER, less is better";
}

TEST(Recipes, WeightedNamesTheMetricsThereAre) {
  std::vector<Candidate> candidates = at_steps({1, 2});
  candidates[0].metrics = {{"dev.loss", 1.0}, {"dev.bleu", 30}};
  const auto expect_refusal = [&](Recipe recipe, const char* words) {
    recipe.type = RecipeType::weighted;
    EXPECT_TRUE(test::says(refusal_of(recipe, candidates), words));
  };
  expect_refusal({.by = "test.loss"}, "dev.bleu, dev.loss");
  expect_refusal({.by = "dev.loss"}, "it has no metrics");
  expect_refusal({.by = "dev.speed"}, "ends with loss, perplexity, bits_per_byte, bleu, chrf or ter");
  expect_refusal({}, "neither");
  expect_refusal({.weights = {1, 2}, .by = "dev.loss"}, "both");
}

TEST(Recipes, LastKTakesTheNewestThatAreFarEnoughApart) {
  const auto candidates = at_steps({100, 500, 200, 300, 400});
  const auto members = [&](int last, std::optional<int> spacing) {
    return mixture_of({.type = RecipeType::last_k, .last = last, .spacing = spacing}, candidates).members;
  };
  EXPECT_EQ(members(3, std::nullopt), (Members{1, 3, 4}));
  EXPECT_EQ(members(3, 200), (Members{0, 1, 3}));
  EXPECT_EQ(members(2, 101), (Members{1, 3}));
  test::refusal(Fault::usage, [&] { static_cast<void>(members(3, 201)); });
  test::refusal(Fault::usage, [&] { static_cast<void>(members(1, 0)); });
  test::refusal(Fault::usage, [&] { static_cast<void>(members(2, -1)); });
  refusal_of({.type = RecipeType::last_k}, candidates);
}

TEST(Recipes, DecayLeadsWhereTheScheduleWouldHave) {
  // A walk of steps 1, 2 and 4. A rate that falls with f shortens the one to checkpoint j to f(j/K) of it.
  const auto candidates = at_steps({30, 10, 20, 40});
  const std::vector<double> place{3, 0, 1, 7};
  const std::pair<Decay, std::function<double(double)>> decays[] = {
      {Decay::linear, [](double t) { return 1 - t; }},
      {Decay::cosine, [](double t) { return (1 + std::cos(std::numbers::pi * t)) / 2; }},
      {Decay::one_minus_sqrt, [](double t) { return 1 - std::sqrt(t); }}};
  for (const auto& [decay, rate] : decays) {
    const std::vector<double> weights = shares(mixture_of({.type = RecipeType::decay, .decay = decay}, candidates));
    EXPECT_NEAR(std::inner_product(weights.begin(), weights.end(), place.begin(), 0.0),
                rate(0.25) + 2 * rate(0.5) + 4 * rate(0.75), 1e-12);
    EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-12);
  }
  for (const double share : shares(mixture_of({.type = RecipeType::decay}, candidates)))
    EXPECT_NEAR(share, 0.25, 1e-12);
  refusal_of({.type = RecipeType::decay}, at_steps({1, 2, 1}));
}

TEST(Recipes, OptionsOfAnotherRecipeAreRefused) {
  const Recipe others[] = {{.weights = {1, 2}}, {.by = "dev.loss"},       {.normalize = false}, {.last = 2},
                           {.spacing = 1},      {.decay = Decay::cosine}, {.min_delta = 0.1},   {.bootstrap = 0.9}};
  for (const Recipe& recipe : others) refusal_of(recipe, at_steps({1, 2}));
  refusal_of({.type = RecipeType::greedy, .min_delta = -1}, at_steps({1, 2}));
  for (const double share : {0.4, 1.0}) refusal_of({.type = RecipeType::greedy, .bootstrap = share}, at_steps({1, 2}));
  refusal_of({.type = RecipeType::greedy, .min_delta = 0, .bootstrap = 0.9}, at_steps({1, 2}));
}

class Greedy : public testing::Test {
 protected:
  /// Points on a line; the loss of a mean is its distance from zero.
  GreedyChoice choose(double min_delta) {
    std::vector<ValidationLoss> alone;
    for (const double point : points) alone.push_back({std::abs(point)});
    const auto accepts = [&](const ValidationLoss& now, const ValidationLoss& with) {
      return now.loss - with.loss > min_delta;
    };
    return choose_greedily(alone, accepts, [&](const Members& members) {
      double sum = 0;
      for (const std::size_t member : members) sum += points[member];
      return ValidationLoss{std::abs(sum / static_cast<double>(members.size()))};
    });
  }
  std::vector<double> points{5, -1.25, 1, 2, -4};
};

TEST_F(Greedy, TakesWhatImprovesTheMeanInTheOrderOfLoss) {
  const GreedyChoice choice = choose(0);  // 1; with -1.25: 0.125; with 2: 0.583; with -4: no; with 5: no
  EXPECT_EQ(choice.members, (Members{1, 2}));
  EXPECT_EQ(choice.loss.loss, 0.125);
  ASSERT_EQ(choice.decisions.size(), 5U);
  Members order;
  std::vector<bool> accepted;
  for (const Decision& decision : choice.decisions) {
    order.push_back(decision.candidate);
    accepted.push_back(decision.accepted);
  }
  EXPECT_EQ(order, (Members{2, 1, 3, 4, 0}));
  EXPECT_EQ(accepted, (std::vector<bool>{true, true, false, false, false}));
}

TEST_F(Greedy, AcceptsOnlyWhatFallsByMoreThanMinDelta) {
  EXPECT_EQ(choose(0.874).members, (Members{1, 2}));
  EXPECT_EQ(choose(0.875).members, (Members{2}));
  points = {1, 1};
  EXPECT_EQ(choose(0).members, (Members{0})) << "no change is no improvement";
}

TEST_F(Greedy, NeverChoosesWhatHasNoLoss) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  points[2] = nan;
  EXPECT_EQ(choose(0).members, (Members{1, 3}));
  points = {nan, nan};
  test::refusal(Fault::numeric, [&] { static_cast<void>(choose(0)); });
  const auto anything = [](const ValidationLoss&, const ValidationLoss&) { return true; };
  const ValidationLoss alone[] = {{1}, {2}};
  EXPECT_EQ(choose_greedily(alone, anything, [&](const Members&) { return ValidationLoss{nan}; }).members,
            (Members{0}));
}

TEST(Bootstrap, TellsGainsFromChance) {
  const ValidationLoss now{0, {1, 2, 3, 4, 5, 6, 7, 8}};
  EXPECT_EQ(bootstrap_wins(now, {0, {0.9, 1.9, 2.9, 3.9, 4.9, 5.9, 6.9, 7.9}}), 1) << "better in every batch";
  EXPECT_EQ(bootstrap_wins(now, now), 0) << "no better in any";
  // Better by 0.1 in all, but by one batch alone: drawn at least once in 1 - (7/8)^8 = 0.656 of resamplings.
  EXPECT_NEAR(bootstrap_wins(now, {0, {1, 2, 3, 4, 5, 6, 7, 7.2}}), 0.656, 4 * std::sqrt(0.656 * 0.344 / 1000));
  EXPECT_EQ(bootstrap_wins(now, {0, {1, 2, 3, 4, 5, 6, 7, 7.2}}), bootstrap_wins(now, {0, {1, 2, 3, 4, 5, 6, 7, 7.2}}));
  test::refusal(Fault::numeric, [&] { static_cast<void>(bootstrap_wins(now, {0, {1, 2}})); });
  test::refusal(Fault::numeric, [&] { static_cast<void>(bootstrap_wins({}, {})); });
}

}  // namespace
}  // namespace argosy::soup
