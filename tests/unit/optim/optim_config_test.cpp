#include "optim/optim_config.hpp"

#include <gtest/gtest.h>

#include "config/describe.hpp"

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

TEST(OptimizerConfig, RefusesNumbersOutOfRange) {
  for (const char* text : {R"({"beta1": 1.0})", R"({"beta2": -0.1})", R"({"epsilon": 0})", R"({"weight_decay": -1})",
                           R"({"max_grad_norm": -1})", R"({"skip": {"abs": -1}})", R"({"skip": {"factor": 0.5}})",
                           R"({"skip": {"after": -1}})", R"({"skip": {"max_consecutive": 0}})", R"({"type": "sgd"})"})
    EXPECT_THROW((void)read_optimizer(text), Error) << text;
  EXPECT_TRUE(config::keys_without_text<optim::OptimizerConfig>().empty());
}

}  // namespace
}  // namespace argosy::test
