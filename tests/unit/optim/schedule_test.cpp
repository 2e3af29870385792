#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "config/describe.hpp"

namespace argosy::test {
namespace {

using optim::learning_rate;
using optim::Schedule;
using optim::ScheduleStyle;

Schedule schedule(ScheduleStyle style, double lr, double min_lr, double warmup, double end) {
  return {.style = style, .lr = lr, .min_lr = min_lr, .warmup = warmup, .decay_end = end, .length = end};
}

optim::ScheduleConfig read_schedule(std::string_view text) {
  return config::from_document<optim::ScheduleConfig>(config::Document::parse(text, "test.json"));
}

TEST(Schedule, LinearWarmupAtItsCorners) {
  const Schedule s = schedule(ScheduleStyle::linear_warmup, 3e-4, 1e-5, 100, 1100);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 3e-6);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100), 3e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 101), 1e-5 + 2.9e-4 * 0.999);
  EXPECT_NEAR(learning_rate(s, 1099), 1e-5 + 2.9e-4 * 0.001, 1e-18);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1100), 1e-5);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1101), 1e-5);
}

TEST(Schedule, CosineOfTheMistralRecipe) {
  const Schedule s = schedule(ScheduleStyle::cosine, 1e-4, 3e-6, 1000, 500000);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 1e-7);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1000), 1e-4);
  EXPECT_NEAR(learning_rate(s, 1001), 3e-6 + 9.7e-5 * (1 + std::cos(std::numbers::pi / 499000)) / 2, 1e-18);
  EXPECT_NEAR(learning_rate(s, 250500), 5.15e-5, 1e-12);
  EXPECT_NEAR(learning_rate(s, 499999), 3e-6 + 9.7e-5 * (1 - std::cos(std::numbers::pi / 499000)) / 2, 1e-18);
  EXPECT_DOUBLE_EQ(learning_rate(s, 500000), 3e-6);
  EXPECT_DOUBLE_EQ(learning_rate(s, 500001), 3e-6);
}

TEST(Schedule, ConstantRisesAndStays) {
  const Schedule s = schedule(ScheduleStyle::constant, 2e-3, 0, 4, 10);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 5e-4);
  for (const double at : {4.0, 5.0, 9.0, 10.0, 11.0}) EXPECT_DOUBLE_EQ(learning_rate(s, at), 2e-3);
}

TEST(Schedule, InverseRootFallsFromTheWarmup) {
  const Schedule s = schedule(ScheduleStyle::inv_sqrt, 3e-4, 1e-5, 16000, 100000);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 3e-4 / 16000);
  EXPECT_DOUBLE_EQ(learning_rate(s, 16000), 3e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 16001), 3e-4 * std::sqrt(16000.0 / 16001.0));
  EXPECT_DOUBLE_EQ(learning_rate(s, 64000), 1.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1e12), 1e-5);
}

TEST(Schedule, WarmupStableDecayCoolsDownAsOneMinusRoot) {
  const Schedule s = schedule(ScheduleStyle::wsd, 1e-3, 0, 10, 1000);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 11), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 800), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 850), 5e-4);
  EXPECT_NEAR(learning_rate(s, 999), 1e-3 * (1 - std::sqrt(199.0 / 200)), 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1000), 0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1001), 0);
  Schedule half = s;
  half.cooldown = 0.5;
  EXPECT_LT(learning_rate(half, 800), 1e-3);
}

TEST(Schedule, NoWarmupStartsAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleStyle::constant, 1e-3, 0, 0, 10), 1), 1e-3);
}

TEST(Schedule, DefaultsFollowTheKindOfModel) {
  const auto config = read_schedule(R"({"lr": 1e-3, "length": 100000})");
  EXPECT_EQ(resolve(config, false).style, ScheduleStyle::linear_warmup);
  EXPECT_EQ(resolve(config, false).warmup, 4000);
  EXPECT_EQ(resolve(config, false).decay_end, 100000);
  EXPECT_EQ(resolve(config, true).style, ScheduleStyle::cosine);
  EXPECT_EQ(resolve(config, true).warmup, 1000);
  EXPECT_EQ(resolve(read_schedule(R"({"lr": 1e-3, "length": 100})"), false).warmup, 50) << "half of a short run";
  EXPECT_EQ(resolve(read_schedule(R"({"lr": 1e-3, "length": "2Mt"})"), false).warmup, 0) << "4000 are steps";
  const auto given =
      read_schedule(R"({"lr": 1e-3, "length": "2Mt", "warmup": "100kt", "decay_end": "1Mt", "style": "wsd",
                              "cooldown": 0.3, "min_lr": 1e-6})");
  const Schedule s = resolve(given, true);
  EXPECT_EQ(s.unit, config::Period::Unit::tgt_token);
  EXPECT_EQ(s.warmup, 1e5);
  EXPECT_EQ(s.decay_end, 1e6);
  EXPECT_EQ(s.length, 2e6);
  EXPECT_EQ(s.style, ScheduleStyle::wsd);
  EXPECT_EQ(s.cooldown, 0.3);
  EXPECT_EQ(s.min_lr, 1e-6);
}

TEST(Schedule, RefusesWhatDoesNotFitTogether) {
  for (const char* text :
       {R"({"lr": -1e-3, "length": 10})", R"({"lr": 1e-3, "length": 10, "min_lr": 1})",
        R"({"lr": 1e-3, "length": 10, "warmup": 10})", R"({"lr": 1e-3, "length": "2e", "warmup": 10})",
        R"({"lr": 1e-3, "length": 10, "warmup": 1, "decay_end": "1e"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "style": "inv_sqrt"})",
        R"({"lr": 1e-3, "length": "2Mt", "style": "inv_sqrt"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "cooldown": 1.5})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "cooldown": 0})"}) {
    EXPECT_THROW((void)read_schedule(text), Error) << text;
  }
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "warmup": 0})"));
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "style": "inv_sqrt"})"));
  EXPECT_TRUE(config::keys_without_text<optim::ScheduleConfig>().empty());
}

}  // namespace
}  // namespace argosy::test
