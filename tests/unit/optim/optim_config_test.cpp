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

TEST(OptimizerConfig, DeclaresTheStateOfEachUnit) {
  const auto names = [](const std::string& text, const spec::Unit& unit) {
    std::vector<std::string> all;
    for (const spec::StateTensor& tensor : own_state_of(read_optimizer(text), unit)) all.push_back(tensor.name);
    return all;
  };
  using Names = std::vector<std::string>;
  const auto unit_of = [](std::int64_t rows, spec::Role role, bool is_block) {
    return spec::Unit{.name = "u", .parameters = {{{"w", {rows, 64}, true}, role}}, .is_block = is_block};
  };
  const spec::Unit block = unit_of(64, spec::Role::ffn_in, true), small = unit_of(63, spec::Role::ffn_in, true),
                   embedding = unit_of(640, spec::Role::target_embedding, false),
                   head = unit_of(640, spec::Role::head_weight, false);
  const Names plain{"exp_avg", "exp_avg_sq"};
  const Names coded{"exp_avg",    "exp_avg_codes",    "exp_avg_scales",
                    "exp_avg_sq", "exp_avg_sq_codes", "exp_avg_sq_scales"};
  for (const char* const text : {R"({"state": "int8"})", R"({"state": "int4"})"}) {
    EXPECT_EQ(names(text, block), coded);
    EXPECT_EQ(names(text, head), coded);
    EXPECT_EQ(names(text, small), plain);
    EXPECT_EQ(names(text, embedding), plain);
  }
  EXPECT_EQ(names(R"({"state": "bf16"})", block), (Names{"exp_avg", "exp_avg_bf16", "exp_avg_sq", "exp_avg_sq_bf16"}));
  EXPECT_EQ(names("{}", block), plain);
  EXPECT_EQ(names(R"({"type": "muon"})", block), (Names{"momentum", "exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names(R"({"type": "muon"})", head), plain);
  const std::vector<spec::StateTensor> four = own_state_of(read_optimizer(R"({"state": "int4"})"), block);
  EXPECT_EQ(std::tuple(four[1].block, four[2].block), std::tuple(2, 128));
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
  EXPECT_TRUE(refuses("muon", "update_clip", "1"));
  EXPECT_TRUE(refuses("muon", "state", "\"int8\""));
  EXPECT_TRUE(refuses("adamw", "momentum", "0.9"));
  EXPECT_NO_THROW(
      (void)read_optimizer(R"({"type": "muon", "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-7, "momentum": 0.9})"));
  EXPECT_TRUE(refuses("adamw", "relative_step", "true"));
  EXPECT_THROW((void)read_optimizer(R"({"type": "adafactor", "warmup_init": true})"), Error);
}

TEST(OptimizerConfig, RefusesNumbersOutOfRange) {
  for (const char* text :
       {R"({"beta1": 1.0})", R"({"beta2": -0.1})", R"({"epsilon": 0})", R"({"weight_decay": -1})",
        R"({"max_grad_norm": -1})", R"({"type": "adafactor", "update_clip": -1})", R"({"type": "muon", "momentum": 1})",
        R"({"skip": {"abs": -1}})", R"({"skip": {"factor": 0.5}})", R"({"skip": {"after": -1}})",
        R"({"skip": {"max_consecutive": 0}})", R"({"type": "sgd"})"})
    EXPECT_THROW((void)read_optimizer(text), Error) << text;
  EXPECT_TRUE(config::keys_without_text<optim::OptimizerConfig>().empty());
}

}  // namespace
}  // namespace argosy::test
