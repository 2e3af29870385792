#include "train/early_stop.hpp"

#include <gmock/gmock.h>

#include <limits>

namespace argosy::train {
namespace {

using plan::Metric;
using testing::HasSubstr;

plan::ValidationConfig patient(std::int64_t patience, double min_delta = 0, Metric metric = Metric::loss) {
  plan::ValidationConfig config;
  config.early_stop = plan::EarlyStopConfig{.metric = metric, .patience = patience, .min_delta = min_delta};
  return config;
}

/// Number of the validation after which the run ends; 0: none of them.
int end_of(ValidationHistory validations, const std::vector<double>& values, Metric metric = Metric::loss) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    validations.take(static_cast<std::int64_t>(10 * (i + 1)), {{metric, values[i]}});
    if (validations.ends()) return static_cast<int>(i) + 1;
  }
  return 0;
}

TEST(EarlyStop, EndsAfterSoManyValidationsInARowThatAreNoBetter) {
  EXPECT_EQ(end_of(ValidationHistory{patient(2)}, {3, 2, 2.5, 2}), 4);
  EXPECT_EQ(end_of(ValidationHistory{patient(2)}, {3, 2, 2.5, 1.9, 2, 1.95}), 6);
  EXPECT_EQ(end_of(ValidationHistory{patient(3)}, {3, 2, 2.5, 2, 1.5}), 0);
  EXPECT_EQ(end_of(ValidationHistory{plan::ValidationConfig{}}, {3, 4, 5, 6, 7}), 0) << "none was asked for";
}

TEST(EarlyStop, ASmallGainCountsAsNone) {
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 0.1)}, {3, 2.95, 2.93}), 3);
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 0.1)}, {3, 2.95, 2.89, 2.85, 2.81}), 5) << "small gains add up";
}

TEST(EarlyStop, ScoresRiseAndLossesFall) {
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 0, Metric::chrf)}, {10, 20, 30, 40}, Metric::chrf), 0);
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 0, Metric::bleu)}, {10, 9, 8}, Metric::bleu), 3);
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 0, Metric::perplexity)}, {10, 20, 30}, Metric::perplexity), 3);
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 0, Metric::ter)}, {60, 50, 40, 30}, Metric::ter), 0);
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 0, Metric::ter)}, {60, 61, 62}, Metric::ter), 3);
  EXPECT_EQ(end_of(ValidationHistory{patient(2, 1, Metric::chrf)}, {10, 10.5, 11, 12}, Metric::chrf), 3);
}

TEST(EarlyStop, WhatIsNoNumberIsNoGain) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(end_of(ValidationHistory{patient(2)}, {nan, nan}), 2);
  EXPECT_EQ(end_of(ValidationHistory{patient(2)}, {nan, 5, nan, 4, nan, nan}), 6);
}

TEST(EarlyStop, SaysWhy) {
  ValidationHistory validations{patient(1, 0.5)};
  validations.take(10, {{Metric::loss, 2.25}});
  validations.take(20, {{Metric::loss, 2.0}});
  EXPECT_THAT(validations.reason(),
              HasSubstr("loss has not improved on 2.25 (step 10) by more than 0.5 in the last 1 validations"));
}

TEST(EarlyStop, APatienceThatIsHalfSpentIsStored) {
  ValidationHistory validations{patient(3)};
  for (const double loss : {2.0, 3.0, 3.0}) validations.take(10, {{Metric::loss, loss}});
  EXPECT_EQ(end_of(ValidationHistory{patient(3), validations.state(30)}, {2.5}), 1);
  EXPECT_EQ(end_of(ValidationHistory{patient(3)}, {2.5}), 0);
  EXPECT_EQ(end_of(ValidationHistory{patient(4), validations.state(30)}, {2.5, 2.5}), 2) << "more patience than before";
  EXPECT_EQ(
      end_of(ValidationHistory{patient(3, 0, Metric::perplexity), validations.state(30)}, {8}, Metric::perplexity), 0)
      << "another metric has its own patience";
}

TEST(KeepBest, TakesGainsThatAreTooSmallForEarlyStop) {
  plan::ValidationConfig config = patient(9, 1);
  config.keep_best = {Metric::loss};
  ValidationHistory validations{config};
  validations.take(10, {{Metric::loss, 3}});
  EXPECT_TRUE(validations.take(20, {{Metric::loss, 2.9}}));
  EXPECT_EQ(validations.state(20).at("keep"), boost::json::array{20});
}

TEST(KeepBest, MovesOnlyToWhatHasBeenCommitted) {
  plan::ValidationConfig config;
  config.keep_best = {Metric::loss};
  const boost::json::array none;
  const auto keep = [&](const ValidationHistory& validations, std::int64_t step) {
    const auto state = validations.state(step);
    return state.contains("keep") ? state.at("keep").as_array() : none;
  };
  ValidationHistory validations{config};
  EXPECT_TRUE(validations.take(10, {{Metric::loss, 3}}));
  EXPECT_EQ(keep(validations, 11), none) << "its checkpoint is still on its way";
  EXPECT_EQ(keep(validations, 10), boost::json::array{10}) << "where this is read, it has been committed";
  validations.saved(10, true);
  EXPECT_TRUE(validations.take(20, {{Metric::loss, 2}}));
  EXPECT_FALSE(validations.take(25, {{Metric::loss, 2.5}})) << "the one on its way is better";
  validations.saved(20, false);
  EXPECT_EQ(keep(validations, 30), boost::json::array{10});
  EXPECT_TRUE(validations.take(30, {{Metric::loss, 2.5}})) << "better than what there is";
  EXPECT_TRUE(validations.take(40, {{Metric::loss, 2}})) << "while the save of 30 is on its way";
  validations.saved(30, true);
  EXPECT_EQ(keep(validations, 40), boost::json::array{40});
  EXPECT_EQ(keep(validations, 45), boost::json::array{30});
  validations.saved(40, true);
  validations.saved(45, true);
  EXPECT_EQ(keep(validations, 45), boost::json::array{40});
}

TEST(KeepBest, NamesTheBestStepOfEachMetric) {
  plan::ValidationConfig config;
  config.keep_best = {Metric::loss, Metric::chrf};
  ValidationHistory validations{config};
  EXPECT_TRUE(validations.state(0).empty());
  EXPECT_TRUE(validations.take(10, {{Metric::loss, 3}, {Metric::chrf, 20}, {Metric::bleu, 1}}));
  EXPECT_TRUE(validations.take(20, {{Metric::loss, 2}, {Metric::chrf, 19}, {Metric::bleu, 2}}));
  EXPECT_FALSE(validations.take(30, {{Metric::loss, 2}, {Metric::chrf, 20}, {Metric::bleu, 3}}))
      << "ties keep the first";
  EXPECT_EQ(validations.state(20).at("keep"), (boost::json::array{20}))
      << "nothing is known of the checkpoint of step 10";
  for (const std::int64_t step : {10, 20, 30}) validations.saved(step, true);
  EXPECT_EQ(validations.state(30).at("keep"), (boost::json::array{20, 10}));
  ValidationHistory resumed{config, validations.state(30)};
  EXPECT_EQ(resumed.state(30), validations.state(30));
  EXPECT_FALSE(resumed.take(40, {{Metric::loss, 2.5}, {Metric::chrf, 18}}));
  config.keep_best = {Metric::chrf};
  EXPECT_EQ(ValidationHistory(config, validations.state(30)).state(30).at("keep"), boost::json::array{10});
}

}  // namespace
}  // namespace argosy::train
