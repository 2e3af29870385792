#include "optim/schedule.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "config/describe.hpp"
#include "support/refusal.hpp"

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
  for (const double at : {99999.0, 100000.0, 100001.0})  // decay_end is no mark of it
    EXPECT_NEAR(learning_rate(s, at), 3e-4 * std::sqrt(16000 / at), 1e-18) << at;
}

TEST(Schedule, WarmupStableDecayCoolsDownAsOneMinusRoot) {
  const Schedule s = schedule(ScheduleStyle::wsd, 1e-3, 0, 10, 1000);
  expect_rates(s, {{1, 1e-4}, {10, 1e-3}, {11, 1e-3}, {800, 1e-3}, {850, 5e-4}, {1000, 0}, {1001, 0}});
  EXPECT_NEAR(learning_rate(s, 999), 1e-3 * (1 - std::sqrt(199.0 / 200)), 1e-12);
  Schedule half = s;
  half.cooldown = 0.5;
  EXPECT_LT(learning_rate(half, 800), 1e-3);
}

TEST(Schedule, WarmupStableDecayHasThreeShapes) {
  Schedule s = schedule(ScheduleStyle::wsd, 1e-3, 1e-4, 10, 1000);
  s.cooldown_shape = optim::CooldownShape::linear;
  expect_rates(s,
               {{1, 1e-4}, {10, 1e-3}, {11, 1e-3}, {800, 1e-3}, {850, 1e-4 + 9e-4 * 0.75}, {1000, 1e-4}, {1001, 1e-4}});
  EXPECT_NEAR(learning_rate(s, 999), 1e-4 + 9e-4 / 200, 1e-15);
  s.cooldown_shape = optim::CooldownShape::cosine;
  expect_rates(s, {{1, 1e-4}, {11, 1e-3}, {800, 1e-3}, {900, 5.5e-4}, {1000, 1e-4}, {1001, 1e-4}});
  EXPECT_NEAR(learning_rate(s, 999), 1e-4 + 9e-4 * (1 - std::cos(std::numbers::pi / 200)) / 2, 1e-15);
}

TEST(Schedule, ExponentialFallsByGammaInEachPeriod) {
  Schedule s = schedule(ScheduleStyle::exponential, 1e-3, 1e-5, 100, 1100);
  s.gamma = 0.5;
  s.decay_period = 200;
  expect_rates(s, {{1, 1e-5}, {100, 1e-3}, {300, 5e-4}, {500, 2.5e-4}, {1100, 1e-3 / 32}, {1e6, 1e-5}});
  for (const double at : {101.0, 1099.0, 1101.0})
    EXPECT_DOUBLE_EQ(learning_rate(s, at), 1e-3 * std::pow(0.5, (at - 100) / 200)) << at;
}

TEST(Schedule, NoamHasItsPeakAtTheEndOfTheWarmup) {
  const Schedule s =
      resolve(read_schedule(R"({"style": "noam", "noam_scale": 2, "warmup": 4000, "length": 100000})"), false, 512);
  EXPECT_NEAR(s.lr, 1.3975e-3, 1e-7);
  EXPECT_TRUE(s.rises());
  for (const double at : {1.0, 4000.0, 4001.0, 50000.0, 99999.0, 100000.0, 100001.0})
    EXPECT_NEAR(learning_rate(s, at), 2 / std::sqrt(512) * std::min(1 / std::sqrt(at), at * std::pow(4000, -1.5)),
                1e-15)
        << at;
}

TEST(Schedule, RsqrtIsConstantAndThenFalls) {
  const Schedule s =
      resolve(read_schedule(R"({"style": "rsqrt", "rsqrt_scale": 3, "warmup": 900, "length": 10000})"), false, 512);
  EXPECT_FALSE(s.rises());
  expect_rates(s, {{1, 0.1}, {900, 0.1}, {901, 0.1 * std::sqrt(900.0 / 901)}, {3600, 0.05}, {10000, 0.03}});
  for (const double at : {9999.0, 10001.0}) EXPECT_NEAR(learning_rate(s, at), 3 / std::sqrt(at), 1e-15);
}

TEST(Schedule, ExponentialDecayIsAStaircase) {
  const Schedule s = resolve(read_schedule(R"({"style": "exponential_decay", "lr": 1e-3, "gamma": 0.5, "start": 500,
                                               "period": 100, "length": 1000})"),
                             false, 512);
  EXPECT_FALSE(s.rises());
  expect_rates(s, {{1, 1e-3},
                   {2, 1e-3},
                   {499, 1e-3},
                   {500, 5e-4},
                   {599, 5e-4},
                   {600, 2.5e-4},
                   {999, 1e-3 / 32},
                   {1000, 1e-3 / 64},
                   {1001, 1e-3 / 64}});
  const Schedule early = resolve(read_schedule(R"({"style": "exponential_decay", "lr": 1e-3, "gamma": 0.5, "start": 0,
                                                   "period": 100, "length": 1000})"),
                                 false, 512);
  EXPECT_DOUBLE_EQ(learning_rate(early, 1), 5e-4);
}

TEST(Schedule, RelativeStepsAreThoseOfAdafactor) {
  const Schedule plain = optim::relative_steps(false, 1e6), slow = optim::relative_steps(true, 1e6);
  for (const double at : {1.0, 100.0, 9999.0, 10000.0, 10001.0, 1e6}) {
    EXPECT_NEAR(learning_rate(plain, at), std::min(1e-2, 1 / std::sqrt(at)), 1e-15) << at;
    EXPECT_NEAR(learning_rate(slow, at), std::min(1e-6 * at, 1 / std::sqrt(at)), 1e-15) << at;
  }
}

/// Every style, in steps, in thousands of tgt_tokens and in epochs: at a place in its own unit it has the same rate.
TEST(Schedule, PeriodsCountStepsTokensOrEpochsAlike) {
  const char* styles[] = {
      R"("style": "linear_warmup", "lr": 1e-3, "min_lr": 1e-5, "warmup": "10{0}", "decay_end": "90{0}")",
      R"("style": "cosine", "lr": 1e-3, "min_lr": 1e-5, "warmup": "10{0}", "decay_end": "90{0}")",
      R"("style": "constant", "lr": 1e-3, "warmup": "10{0}")",
      R"("style": "inv_sqrt", "lr": 1e-3, "warmup": "10{0}")",
      R"("style": "wsd", "lr": 1e-3, "min_lr": 1e-5, "warmup": "10{0}", "decay_end": "90{0}", "cooldown": 0.3)",
      R"("style": "wsd", "lr": 1e-3, "warmup": "10{0}", "cooldown_shape": "linear")",
      R"("style": "wsd", "lr": 1e-3, "warmup": "10{0}", "cooldown_shape": "cosine")",
      R"("style": "exponential", "lr": 1e-3, "warmup": "10{0}", "gamma": 0.5, "decay_period": "20{0}")",
      R"("style": "noam", "noam_scale": 2, "warmup": "10{0}")",
      R"("style": "rsqrt", "rsqrt_scale": 2, "warmup": "10{0}")",
      R"("style": "exponential_decay", "lr": 1e-3, "gamma": 0.5, "start": "30{0}", "period": "20{0}")"};
  for (const char* style : styles) {
    SCOPED_TRACE(style);
    const auto read_in = [&](const char* unit) {
      return resolve(
          read_schedule(fmt::format(R"({{{}, "length": "100{}"}})", fmt::format(fmt::runtime(style), unit), unit)),
          false, 512);
    };
    const Schedule steps = read_in("u"), tokens = read_in("kt"), epochs = read_in("e");
    EXPECT_EQ(std::tuple(steps.unit, tokens.unit, epochs.unit),
              std::tuple(config::Period::Unit::step, config::Period::Unit::tgt_token, config::Period::Unit::epoch));
    // A rate by a scale is one of the place itself: √1000 lower where places are thousands.
    const bool by_scale = steps.style == ScheduleStyle::noam || steps.style == ScheduleStyle::rsqrt;
    for (const double at : {1.0, 10.0, 11.0, 50.0, 89.0, 90.0, 91.0, 99.0, 100.0, 101.0}) {
      const double rate = learning_rate(steps, at);
      EXPECT_DOUBLE_EQ(learning_rate(epochs, at), rate) << at;
      EXPECT_NEAR(learning_rate(tokens, 1000 * at), by_scale ? rate / std::sqrt(1000) : rate, 1e-15) << at;
    }
  }
}

TEST(Schedule, UsualRatesFollowGpt3) {
  EXPECT_NEAR(optim::usual_lr(85e6), 6e-4, 1e-9);
  EXPECT_NEAR(optim::usual_lr(6.4e9), 1.2e-4, 0.1e-4);
  EXPECT_EQ(optim::usual_lr(1e5), 2e-3);
}

TEST(Schedule, RefusesKeysOfAnotherStyle) {
  const std::pair<const char*, const char*> keys[] = {
      {"lr", "1e-3"},       {"min_lr", "1e-5"},    {"warmup", "2"},
      {"decay_end", "9"},   {"cooldown", "0.3"},   {"cooldown_shape", "\"linear\""},
      {"gamma", "0.5"},     {"decay_period", "3"}, {"noam_scale", "2"},
      {"rsqrt_scale", "2"}, {"start", "4"},        {"period", "2"}};
  const std::pair<const char*, std::set<std::string>> styles[] = {
      {"linear_warmup", {"lr", "min_lr", "warmup", "decay_end"}},
      {"cosine", {"lr", "min_lr", "warmup", "decay_end"}},
      {"constant", {"lr", "warmup"}},
      {"inv_sqrt", {"lr", "min_lr", "warmup"}},
      {"wsd", {"lr", "min_lr", "warmup", "decay_end", "cooldown", "cooldown_shape"}},
      {"exponential", {"lr", "min_lr", "warmup", "gamma", "decay_period"}},
      {"noam", {"warmup", "noam_scale"}},
      {"rsqrt", {"warmup", "rsqrt_scale"}},
      {"exponential_decay", {"lr", "gamma", "start", "period"}}};
  for (const auto& [style, own] : styles) {
    std::string whole = fmt::format(R"({{"style": "{}", "length": 10)", style);
    for (const auto& [key, value] : keys)
      if (own.contains(key)) whole += fmt::format(R"(, "{}": {})", key, value);
    EXPECT_NO_THROW((void)read_schedule(whole + "}")) << style;
    for (const auto& [key, value] : keys) {
      if (own.contains(key)) continue;
      const std::string text = fmt::format(R"({}, "{}": {}}})", whole, key, value);
      EXPECT_TRUE(says(refusal(Fault::config, [&] { (void)read_schedule(text); }),
                       fmt::format("{} must be absent unless schedule.style is", key)))
          << text;
    }
  }
  EXPECT_THROW((void)read_schedule(R"({"gamma": 0.5, "lr": 1e-3})"), Error) << "the default style";
  for (const char* missing :
       {R"({"style": "noam"})", R"({"style": "rsqrt"})", R"({"style": "exponential", "gamma": 0.9})",
        R"({"style": "exponential", "decay_period": 9})",
        R"({"style": "exponential_decay", "gamma": 0.9, "start": 9})"})
    EXPECT_TRUE(
        says(refusal(Fault::config, [&] { (void)read_schedule(missing); }), "must be given with schedule.style"));
}

TEST(Schedule, NoWarmupStartsAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(ScheduleStyle::constant, 1e-3, 0, 0, 10), 1), 1e-3);
}

TEST(Schedule, DefaultsFollowTheKindOfModel) {
  const auto config = read_schedule(R"({"lr": 1e-3, "length": 100000})");
  const Schedule translation = resolve(config, false, 512), language = resolve(config, true, 512);
  EXPECT_EQ(std::tuple(translation.style, translation.warmup, translation.decay_end),
            std::tuple(ScheduleStyle::linear_warmup, 4000, 100000));
  EXPECT_EQ(std::tuple(language.style, language.warmup), std::tuple(ScheduleStyle::cosine, 1000));
  EXPECT_EQ(resolve(read_schedule(R"({"lr": 1e-3, "length": 100})"), false, 512).warmup, 50) << "half of a short run";
  EXPECT_EQ(resolve(read_schedule(R"({"lr": 1e-3, "length": "2Mt"})"), false, 512).warmup, 0) << "4000 are steps";
  EXPECT_EQ(resolve(read_schedule(R"({"lr": 1e-3, "length": 100, "style": "wsd", "cooldown": 0.7})"), false, 1).warmup,
            30)
      << "as long as there is no cool-down";
  const auto given =
      read_schedule(R"({"lr": 1e-3, "length": "2Mt", "warmup": "100kt", "decay_end": "1Mt", "style": "wsd",
                              "cooldown": 0.3, "min_lr": 1e-6})");
  const Schedule s = resolve(given, true, 512);
  EXPECT_EQ(std::tuple(s.unit, s.style), std::tuple(config::Period::Unit::tgt_token, ScheduleStyle::wsd));
  EXPECT_EQ(std::tuple(s.warmup, s.decay_end, s.length), std::tuple(1e5, 1e6, 2e6));
  EXPECT_EQ(std::tuple(s.cooldown, s.min_lr), std::tuple(0.3, 1e-6));
}

TEST(Schedule, RefusesWhatDoesNotFitTogether) {
  for (const char* text :
       {R"({"lr": -1e-3, "length": 10})", R"({"lr": 1e-3, "length": 10, "min_lr": 1})",
        R"({"lr": 1e-3, "length": 10, "warmup": 10})", R"({"lr": 1e-3, "length": "2e", "warmup": 10})",
        R"({"lr": 1e-3, "length": 10, "warmup": 1, "decay_end": "1e"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 4, "decay_end": 3})",
        R"({"lr": 1e-3, "length": 10, "warmup": 20, "style": "constant"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 9, "style": "wsd"})",
        R"({"lr": 1e-3, "length": 100, "warmup": 5, "decay_end": 10, "cooldown": 0.6, "style": "wsd"})",
        R"({"noam_scale": 1, "length": 10, "warmup": 0, "style": "noam"})",
        R"({"noam_scale": -1, "length": 10, "style": "noam"})",
        R"({"rsqrt_scale": -1, "length": 10, "style": "rsqrt"})",
        R"({"lr": 1e-3, "gamma": 1.5, "decay_period": 2, "length": 10, "style": "exponential"})",
        R"({"lr": 1e-3, "gamma": 0.5, "decay_period": 0, "length": 10, "style": "exponential"})",
        R"({"lr": 1e-3, "gamma": 0.5, "decay_period": "1e", "length": 10, "style": "exponential"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "style": "inv_sqrt"})",
        R"({"lr": 1e-3, "length": "2Mt", "style": "inv_sqrt"})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "cooldown": 1.5})",
        R"({"lr": 1e-3, "length": 10, "warmup": 0, "cooldown": 0})"})
    EXPECT_THROW((void)read_schedule(text), Error) << text;
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "warmup": 0})"));
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "warmup": 10, "style": "constant"})"));
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "style": "inv_sqrt"})"));
  EXPECT_NO_THROW((void)read_schedule(R"({"lr": 1e-3, "length": 10, "warmup": 8, "style": "wsd"})"));
  EXPECT_TRUE(config::keys_without_text<optim::ScheduleConfig>().empty());
}

}  // namespace
}  // namespace argosy::test
