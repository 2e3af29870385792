#include "decode/choice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/random.hpp"

namespace argosy::test {
namespace {

using decode::draw, decode::DrawOptions;
constexpr float excluded = -std::numeric_limits<float>::infinity();

TEST(Penalties, ChangeTheLogitOfEachIdOnce) {
  std::vector<float> logits{2, -2, 0, 8};
  decode::penalize_repetition(logits, std::vector<std::int32_t>{0, 1, 0, 2, 1}, 4);
  EXPECT_EQ(logits, (std::vector<float>{0.5, -8, 0, 8}));
}

TEST(Penalties, ExcludeWhatWouldRepeatASequence) {
  const std::vector<std::int32_t> ids{1, 2, 3, 1, 2, 0, 1, 2};
  const auto left = [&](std::int64_t n) {
    std::vector<float> logits(5, 1);
    decode::forbid_repeated_ngrams(logits, ids, n);
    std::vector<int> out;
    for (int id = 0; id < 5; ++id) {
      if (logits[static_cast<std::size_t>(id)] == 1) out.push_back(id);
    }
    return out;
  };
  EXPECT_EQ(left(1), (std::vector<int>{4}));
  EXPECT_EQ(left(2), (std::vector<int>{1, 2, 4}));  // 2 3, 2 0
  EXPECT_EQ(left(3), (std::vector<int>{1, 2, 4}));  // 1 2 3, 1 2 0
  EXPECT_EQ(left(4), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(left(20), (std::vector<int>{0, 1, 2, 3, 4}));
}

/// Pearson's statistic of 20,000 draws. Its mean is the number of ids that can be drawn, less 1.
double chi_squared(const std::vector<float>& logits, const DrawOptions& options, const std::vector<double>& expected) {
  constexpr int draws = 20'000;
  std::vector<double> counts(logits.size());
  for (std::uint64_t i = 0; i < draws; ++i) {
    RandomStream random(11, i);
    ++counts[static_cast<std::size_t>(draw(logits, options, random.uniform()).id)];
  }
  double sum = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << id;
    } else {
      sum += std::pow(counts[id] - draws * expected[id], 2) / (draws * expected[id]);
    }
  }
  return sum;
}

TEST(Draw, FrequenciesAreThoseOfTheDistribution) {
  const std::vector<double> p{0.05, 0.3, 0.1, 0.3, 0.25};
  std::vector<float> logits;
  for (const double one : p) logits.push_back(static_cast<float>(std::log(one) + 7));
  logits.push_back(excluded);
  const auto of = [](std::vector<double> weights) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (double& weight : weights) weight /= sum;
    return weights;
  };
  constexpr double limit = 23.5;  // at 5 degrees of freedom, 0.03 % of all seeds exceed it
  EXPECT_LT(chi_squared(logits, {}, of({0.05, 0.3, 0.1, 0.3, 0.25, 0})), limit);
  EXPECT_LT(chi_squared(logits, {.temperature = 0.5}, of({0.0025, 0.09, 0.01, 0.09, 0.0625, 0})), limit);
  EXPECT_LT(chi_squared(logits, {.temperature = 2},
                        of({std::sqrt(0.05), std::sqrt(0.3), std::sqrt(0.1), std::sqrt(0.3), 0.5, 0})),
            limit);
  EXPECT_LT(chi_squared(logits, {.top_k = 3}, of({0, 0.3, 0, 0.3, 0.25, 0})), limit);
  EXPECT_LT(chi_squared(logits, {.top_k = 1}, of({0, 1, 0, 0, 0, 0})), limit);  // of equal ones the lower
  EXPECT_LT(chi_squared(logits, {.top_p = 0.62}, of({0, 0.3, 0, 0.3, 0.25, 0})), limit);
  EXPECT_LT(chi_squared(logits, {.top_p = 0.58}, of({0, 0.3, 0, 0.3, 0, 0})), limit);
  // Temperature first, then top_k, then top_p of what is left: .09 and .09 of .2425 are .74.
  EXPECT_LT(chi_squared(logits, {.temperature = 0.5, .top_k = 3, .top_p = 0.73}, of({0, 1, 0, 1, 0, 0})), limit);
  EXPECT_LT(chi_squared(logits, {.temperature = 0.5, .top_k = 3, .top_p = 0.75}, of({0, 0.09, 0, 0.09, 0.0625, 0})),
            limit);
}

TEST(Draw, LogProbabilityIsThatOfTheLogits) {
  const std::vector<float> logits{1, 2, 3, excluded};
  const double sum = std::exp(1) + std::exp(2) + std::exp(3);
  for (const double uniform : {0.0, 0.2, 0.5, 0.999999}) {
    const auto drawn = draw(logits, {.temperature = 3, .top_k = 2}, uniform);
    EXPECT_NEAR(drawn.log_p, static_cast<double>(logits[static_cast<std::size_t>(drawn.id)]) - std::log(sum), 1e-6);
  }
  EXPECT_EQ(draw(logits, {}, 0.9999999999999999).id, 2);  // the last one is excluded
  EXPECT_EQ(draw(logits, {.temperature = 1e-300}, 0.5).id, 2);
  EXPECT_TRUE(std::isnan(draw(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, {}, 0.5).log_p));
}

}  // namespace
}  // namespace argosy::test
