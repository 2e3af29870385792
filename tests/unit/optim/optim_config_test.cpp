#include "optim/optim_config.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/describe.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

optim::OptimizerConfig read_optimizer(std::string_view text) {
  return config::from_document<optim::OptimizerConfig>(config::Document::parse(text, "test.json"));
}

TEST(OptimizerConfig, DefaultsFollowTheKindOfModelAndOfWeights) {
  const optim::AdamwNumbers translation = resolve(read_optimizer("{}"), false, true),
                            language = resolve(read_optimizer("{}"), true, true);
  EXPECT_EQ(std::tuple(translation.beta2, translation.weight_decay), std::tuple(0.98, 0.0));
  EXPECT_EQ(std::tuple(language.beta1, language.beta2, language.epsilon, language.weight_decay),
            std::tuple(0.9, 0.95, 1e-8, 0.1));
  EXPECT_EQ(resolve(read_optimizer("{}"), true, false).epsilon, 1e-4);
}

TEST(OptimizerConfig, GivenNumbersWin) {
  const optim::AdamwNumbers numbers =
      resolve(read_optimizer(R"({"type": "adamw", "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-9, "weight_decay": 0.3})"),
              true, false);
  EXPECT_EQ(std::tuple(numbers.beta1, numbers.beta2, numbers.epsilon, numbers.weight_decay),
            std::tuple(0.8, 0.9, 1e-9, 0.3));
}

TEST(OptimizerConfig, AdafactorHasDefaultsOfItsOwn) {
  const optim::OptimizerConfig plain = read_optimizer(R"({"type": "adafactor"})"),
                               set = read_optimizer(R"({"type": "adafactor", "update_clip": 0.5, "weight_decay": 0.2,
                                                        "max_grad_norm": 2, "relative_step": true, "ema": 0.9})");
  EXPECT_EQ(std::tuple(optim::max_grad_norm_of(plain), optim::max_grad_norm_of(set), optim::max_grad_norm_of({})),
            std::tuple(0, 2, 1));
  const optim::AdafactorNumbers numbers = adafactor_numbers(plain, true), other = adafactor_numbers(set, true);
  EXPECT_EQ(std::tuple(numbers.update_clip, numbers.weight_decay, numbers.scales_by_weights, numbers.ema),
            std::tuple(1, 0.1, false, 0));
  EXPECT_EQ(std::tuple(other.update_clip, other.weight_decay, other.scales_by_weights, other.ema),
            std::tuple(0.5, 0.2, true, 0.9));
  EXPECT_EQ(adafactor_numbers(plain, false).weight_decay, 0);
}

TEST(OptimizerConfig, RefusesKeysOfAnotherType) {
  const auto refuses = [](const std::string& type, const std::string& key, const std::string& value) {
    const std::string text = fmt::format(R"({{"type": "{}", "{}": {}}})", type, key, value);
    return says(refusal(Fault::config, [&] { (void)read_optimizer(text); }),
                fmt::format("{} must be absent unless optimizer.type is", key));
  };
  EXPECT_TRUE(refuses("adafactor", "beta1", "0.8"));
  EXPECT_TRUE(refuses("adafactor", "beta2", "0.8"));
  EXPECT_TRUE(refuses("adafactor", "epsilon", "1e-8"));
  EXPECT_TRUE(refuses("adamw", "update_clip", "1"));
  EXPECT_TRUE(refuses("adamw", "relative_step", "true"));
  EXPECT_THROW((void)read_optimizer(R"({"type": "adafactor", "warmup_init": true})"), Error);
}

TEST(OptimizerConfig, RefusesNumbersOutOfRange) {
  for (const char* text : {R"({"beta1": 1.0})", R"({"beta2": -0.1})", R"({"epsilon": 0})", R"({"weight_decay": -1})",
                           R"({"max_grad_norm": -1})", R"({"type": "adafactor", "update_clip": -1})",
                           R"({"skip": {"abs": -1}})", R"({"skip": {"factor": 0.5}})", R"({"skip": {"after": -1}})",
                           R"({"skip": {"max_consecutive": 0}})", R"({"type": "sgd"})"})
    EXPECT_THROW((void)read_optimizer(text), Error) << text;
  EXPECT_TRUE(config::keys_without_text<optim::OptimizerConfig>().empty());
}

}  // namespace
}  // namespace argosy::test
