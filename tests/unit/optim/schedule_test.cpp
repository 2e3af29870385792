#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "config/describe.hpp"

namespace argosy::test {
namespace {

using optim::learning_rate, optim::Schedule, optim::ScheduleStyle;

Schedule schedule(ScheduleStyle style, double lr, double min_lr, double warmup, double end) {
  return {.style = style, .lr = lr, .min_lr = min_lr, .warmup = warmup, .decay_end = end, .length = end};
}

void expect_rates(const Schedule& schedule, const std::vector<std::pair<double, double>>& rates) {
  for (const auto& [at, rate] : rates) EXPECT_DOUBLE_EQ(learning_rate(schedule, at), rate) << at;
}

optim::ScheduleConfig read_schedule(std::string_view text) {
  return config::from_document<optim::ScheduleConfig>(config::Document::parse(text, "test.json"));
}

TEST(Schedule, LinearWarmupAtItsCorners) {
  const Schedule s = schedule(ScheduleStyle::linear_warmup, 3e-4, 1e-5, 100, 1100);
  expect_rates(s, {{1, 3e-6}, {100, 3e-4}, {101, 1e-5 + 2.9e-4 * 0.999}, {1100, 1e-5}, {1101, 1e-5}});
  EXPECT_NEAR(learning_rate(s, 1099), 1e-5 + 2.9e-4 * 0.001, 1e-18);
}

TEST(Schedule, CosineOfTheMistralRecipe) {
  const Schedule s = schedule(ScheduleStyle::cosine, 1e-4, 3e-6, 1000, 500000);
  expect_rates(s, {{1, 1e-7}, {1000, 1e-4}, {500000, 3e-6}, {500001, 3e-6}});
  EXPECT_NEAR(learning_rate(s, 1001), 3e-6 + 9.7e-5 * (1 + std::cos(std::numbers::pi / 499000)) / 2, 1e-18);
  EXPECT_NEAR(learning_rate(s, 250500), 5.15e-5, 1e-12);
  EXPECT_NEAR(learning_rate(s, 499999), 3e-6 + 9.7e-5 * (1 - std::cos(std::numbers::pi / 499000)) / 2, 1e-18);
}

TEST(Schedule, ConstantRisesAndStays) {
  const Schedule s = schedule(ScheduleStyle::constant, 2e-3, 0, 4, 10);
  expect_rates(s, {{1, 5e-4}, {4, 2e-3}, {5, 2e-3}, {9, 2e-3}, {10, 2e-3}, {11, 2e-3}});
}

TEST(Schedule, InverseRootFallsFromTheWarmup) {
  const Schedule s = schedule(ScheduleStyle::inv_sqrt, 3e-4, 1e-5, 16000, 100000);
  expect_rates(
      s,
      {{1, 3e-4 / 16000}, {16000, 3e-4}, {16001, 3e-4 * std::sqrt(16000.0 / 16001.0)}, {64000, 1.5e-4}, {1e12, 1e-5}});
}

TEST(Schedule, WarmupStableDecayCoolsDownAsOneMinusRoot) {
  const Schedule s = schedule(ScheduleStyle::wsd, 1e-3, 0, 10, 1000);
  expect_rates(s, {{1, 1e-4}, {10, 1e-3}, {11, 1e-3}, {800, 1e-3}, {850, 5e-4}, {1000, 0}, {1001, 0}});
  EXPECT_NEAR(learning_rate(s, 999), 1e-3 * (1 - std::sqrt(199.0 / 200)), 1e-12);
  Schedule half = s;
  half.cooldown = 0.5;
  EXPECT_LT(learning_rate(half, 800), 1e-3);
}

TEST(Schedule, NoWarmupStartsAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleStyle::constant, 1e-3, 0, 0, 10), 1), 1e-3);
}

TEST(Schedule, DefaultsFollowTheKindOfModel) {
  const auto config = read_schedule(R"({"lr": 1e-3, "length": 100000})");
  const Schedule translation = resolve(config, false), language = resolve(config, true);
  EXPECT_EQ(std::tuple(translation.style, translation.warmup, translation.decay_end),
            std::tuple(ScheduleStyle::linear_warmup, 4000, 100000));
  EXPECT_EQ(std::tuple(language.style, language.warmup), std::tuple(ScheduleStyle::cosine, 1000));
  EXPECT_EQ(resolve(read_schedule(R"({"lr": 1e-3, "length": 100})"), false).warmup, 50) << "half of a short run";
  EXPECT_EQ(resolve(read_schedule(R"({"lr": 1e-3, "length": "2Mt"})"), false).warmup, 0) << "4000 are steps";
  const auto given =
      read_schedule(R"({"lr": 1e-3, "length": "2Mt", "warmup": "100kt", "decay_end": "1Mt", "style": "wsd",
                              "cooldown": 0.3, "min_lr": 1e-6})");
  const Schedule s = resolve(given, true);
  EXPECT_EQ(std::tuple(s.unit, s.style), std::tuple(config::Period::Unit::tgt_token, ScheduleStyle::wsd));
  EXPECT_EQ(std::tuple(s.warmup, s.decay_end, s.length), std::tuple(1e5, 1e6, 2e6));
  EXPECT_EQ(std::tuple(s.cooldown, s.min_lr), std::tuple(0.3, 1e-6));
}

TEST(Schedule, RefusesWhatDoesNotFitTogether) {
  for (const char* text :
       {R"({"lr": -1e-3, "length": 10})", R"({"lr": 1e-3, "length": 10, "min_lr": 1})",
        R"({"lr": 1e-3, "length": 10, "warmup": 10})", R"({"lr": 1e-3, "length": "2e", "warmup": 10})",
        R"({"lr": 1e-3, "length": 10, "warmup": 1, "decay_end": "1e"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "style": "inv_sqrt"})",
        R"({"lr": 1e-3, "length": "2Mt", "style": "inv_sqrt"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "cooldown": 1.5})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "cooldown": 0})"})
    EXPECT_THROW((void)read_schedule(text), Error) << text;
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "warmup": 0})"));
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "style": "inv_sqrt"})"));
  EXPECT_TRUE(config::keys_without_text<optim::ScheduleConfig>().empty());
}

}  // namespace
}  // namespace argosy::test
