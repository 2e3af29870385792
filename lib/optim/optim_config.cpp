#include "optim/optim_config.hpp"

#include <fmt/format.h>

namespace argosy::optim {
std::span<const config::KeyText> key_texts(const SkipConfig&) {
  static constexpr config::KeyText texts[] = {
      {"abs", "skip a step whose gradient norm is above this; 0: off"},
      {"factor", "skip a step whose gradient norm is above this times its running mean; 0: off"},
      {"after", "first step at which `factor` applies"},
      {"max_consecutive", "number of skipped steps in a row that ends the run (exit code 6)"}};
  return texts;
}

std::span<const config::KeyText> key_texts(const OptimizerConfig&) {
  static constexpr config::KeyText texts[] = {
      {"type", "adamw: decoupled weight decay (arXiv:1711.05101)"},
      {"weight_decay",
       "applies to matrices, not to norms and biases; default: 0.1 for a decoder, 0 for an encoder_decoder"},
      {"beta1", "decay of the first moment"},
      {"beta2", "decay of the second moment; default: 0.95 for a decoder, 0.98 for an encoder_decoder"},
      {"epsilon",
       "added to the root of the second moment; gradients are means over tgt_tokens; default: 1e-8, with precision "
       "bf16_pure 1e-4"},
      {"max_grad_norm", "gradients are scaled down to this norm over all parameters; 0: off"},
      {"ema",
       "decay of a running mean of the weights, such as 0.9999; checkpoints store the mean in fp32, for --ema of soup, "
       "export and translate; each validation evaluates the weights and then the mean; at update t the decay is at "
       "most (t+1)/(t+10); 0: none"},
      {"skip", "when a step is skipped; a step whose gradient norm is not finite is always skipped"}};
  return texts;
}

void validate(const SkipConfig& config, config::Problems& problems) {
  problems.require(config.abs >= 0, "/abs", "0 or more", config.abs);
  problems.require(config.factor == 0 || config.factor > 1, "/factor", "0 or a number above 1", config.factor);
  problems.require(config.after >= 0, "/after", "0 or more", config.after);
  problems.require(config.max_consecutive > 0, "/max_consecutive", "1 or more", config.max_consecutive);
}

void validate(const OptimizerConfig& config, config::Problems& problems) {
  const double decay = config.weight_decay.value_or(0), beta2 = config.beta2.value_or(0),
               epsilon = config.epsilon.value_or(1);
  problems.require(decay >= 0, "/weight_decay", "0 or more", decay);
  problems.require(config.beta1 >= 0 && config.beta1 < 1, "/beta1", "a number in [0, 1)", config.beta1);
  problems.require(beta2 >= 0 && beta2 < 1, "/beta2", "a number in [0, 1)", beta2);
  problems.require(epsilon > 0, "/epsilon", "a number above 0", epsilon);
  problems.require(config.ema >= 0 && config.ema < 1, "/ema", "a number in [0, 1)", config.ema);
  problems.require(config.max_grad_norm >= 0, "/max_grad_norm", "0 or more", config.max_grad_norm);
}

std::vector<spec::StateTensor> own_state_of(const OptimizerConfig& config, const spec::Unit& /*all alike*/) {
  switch (config.type) {
    case OptimizerType::adamw:
      break;
  }
  return {{std::string(spec::adam_moments[0])}, {std::string(spec::adam_moments[1])}};
}

spec::StateOf state_of(const OptimizerConfig& config) {
  return [config](const spec::Unit& unit) {
    std::vector<spec::StateTensor> state{{std::string(spec::weights_tensor)}};
    for (spec::StateTensor& own : own_state_of(config, unit)) state.push_back(std::move(own));
    if (config.ema > 0) state.push_back({std::string(spec::mean_tensor)});
    return state;
  };
}

AdamwNumbers resolve(const OptimizerConfig& config, bool language_model, bool has_master) {
  return {.beta1 = config.beta1,
          .beta2 = config.beta2.value_or(language_model ? 0.95 : 0.98),
          .epsilon = config.epsilon.value_or(has_master ? 1e-8 : 1e-4),
          .weight_decay = config.weight_decay.value_or(language_model ? 0.1 : 0.0),
          .ema = config.ema};
}

}  // namespace argosy::optim
