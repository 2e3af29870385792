#include "optim/optim_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace argosy::optim {
std::span<const config::KeyText> key_texts(const SkipConfig&) {
  static constexpr config::KeyText texts[] = {
      {"abs", "skip a step whose gradient norm is above this; 0: off"},
      {"factor", "skip a step whose gradient norm is above this times its running mean; 0: off"},
      {"after", "`factor` applies after this step"},
      {"max_consecutive", "number of skipped steps in a row that ends the run (exit code 6)"}};
  return texts;
}

std::span<const config::KeyText> key_texts(const OptimizerConfig&) {
  static constexpr config::KeyText texts[] = {
      {"type",
       "adamw: decoupled weight decay (arXiv:1711.05101); adafactor: a second moment for each row and column instead "
       "of each weight, no first moment (arXiv:1804.04235); muon: orthogonal steps of the matrices in blocks, each of "
       "q, k, "
       "v, gate and up by itself, and adamw for all else"},
      {"weight_decay",
       "applies to matrices, not to norms and biases; default: 0.1 for a decoder, 0 for an encoder_decoder"},
      {"beta1", "adamw, muon: decay of the first moment"},
      {"beta2", "adamw, muon: decay of the second moment; default: 0.95 for a decoder, 0.98 for an encoder_decoder"},
      {"epsilon",
       "adamw, muon: added to the root of the second moment; gradients are means over tgt_tokens; default: 1e-8, with "
       "precision "
       "bf16_pure 1e-4"},
      {"max_grad_norm",
       "gradients are scaled down to this norm over all parameters; 0: off; default: 1, with adafactor 0"},
      {"update_clip",
       "the update of a matrix is scaled down to this root mean square; adafactor: default 1; adamw: of gradient / "
       "root "
       "of the second moment (StableAdamW, arXiv:2304.13013), default 0: off"},
      {"state",
       "adamw: how both moments are stored: fp32; bf16, rounded stochastically; int8, int4: codes with a scale for a "
       "block "
       "of 256, 128 elements; moments of embeddings, norms, biases and blocks with matrices below 4096 elements are "
       "fp32"},
      {"momentum", "muon: decay of the running mean of the gradient"},
      {"relative_step",
       "adafactor: the learning rate of step t is min(0.01, 1/√t) times the root mean square of the matrix (at least "
       "0.001); schedule then has a length alone"},
      {"warmup_init", "adafactor: with relative_step, min(t/1000000, 1/√t) instead of min(0.01, 1/√t)"},
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
  problems.require(config.max_grad_norm.value_or(0) >= 0, "/max_grad_norm", "0 or more",
                   config.max_grad_norm.value_or(0));
  problems.require(config.update_clip.value_or(0) >= 0, "/update_clip", "0 or more", config.update_clip.value_or(0));
  problems.require(!config.warmup_init || config.relative_step, "/warmup_init",
                   "false unless optimizer.relative_step is true", "true");
  const OptimizerConfig none;
  const auto only = [&](bool given, const char* pointer, std::initializer_list<OptimizerType> types) {
    std::string names;
    for (const OptimizerType type : types)
      names += (names.empty() ? "" : " or ") + std::string(boost::describe::enum_to_string(type, ""));
    problems.require(!given || std::find(types.begin(), types.end(), config.type) != types.end(), pointer,
                     fmt::format("absent unless optimizer.type is {}", names), "a value");
  };
  using Type = OptimizerType;
  only(config.beta1 != none.beta1, "/beta1", {Type::adamw, Type::muon});
  only(config.beta2.has_value(), "/beta2", {Type::adamw, Type::muon});
  only(config.epsilon.has_value(), "/epsilon", {Type::adamw, Type::muon});
  only(config.update_clip.has_value(), "/update_clip", {Type::adamw, Type::adafactor});
  only(config.state != none.state, "/state", {Type::adamw});
  only(config.momentum != none.momentum, "/momentum", {Type::muon});
  problems.require(config.momentum >= 0 && config.momentum < 1, "/momentum", "a number in [0, 1)", config.momentum);
  only(config.relative_step, "/relative_step", {Type::adafactor});
}

namespace {

/// Codes of small tensors save nothing, and those of embeddings, whose gradients are sparse, make training unstable
/// (arXiv:2110.02861, section 2).
bool stores_plain(const spec::Unit& unit) {
  constexpr std::int64_t least = 4096;
  return std::any_of(unit.parameters.begin(), unit.parameters.end(), [](const spec::Parameter& parameter) {
    return parameter.role == spec::Role::source_embedding || parameter.role == spec::Role::target_embedding ||
           (parameter.decay && parameter.numel() < least);
  });
}

/// AdamW's. Of parameters without decay they are fp32: a tensor is kept for all that decay, or for all that do not.
std::vector<spec::StateTensor> moments_of(StateType type, const spec::Unit& unit) {
  const bool plain = type == StateType::fp32 || stores_plain(unit);
  std::vector<spec::StateTensor> all;
  for (const std::string_view moment : spec::adam_moments) {
    const std::string name(moment);
    all.push_back({.name = name, .covers = plain ? spec::Covers::all : spec::Covers::without_decay});
    if (plain) continue;
    const spec::Covers covers = spec::Covers::with_decay;
    if (type == StateType::bf16) {
      all.push_back({.name = name + "_bf16", .dtype = DType::bf16, .covers = covers});
      continue;
    }
    const bool bytes = type == StateType::int8;
    all.push_back({.name = name + "_codes", .dtype = DType::u8, .covers = covers, .block = bytes ? 1 : 2});
    all.push_back({.name = name + "_scales", .covers = covers, .block = bytes ? 256 : 128});
  }
  return all;
}

}  // namespace

std::set<std::size_t> whole_units(const OptimizerConfig& config, const spec::ModelSpec& spec) {
  std::set<std::size_t> units;
  for (std::size_t u = 0; u < spec.units.size(); ++u)
    if (config.type == OptimizerType::muon && spec.units[u].is_block && !spec.units[u].frozen) units.insert(u);
  return units;
}

std::vector<spec::StateTensor> own_state_of(const OptimizerConfig& config, const spec::Unit& unit) {
  switch (config.type) {
    case OptimizerType::adamw:
      break;
    case OptimizerType::adafactor:
      return {{.name = "exp_avg_sq_row", .extent = spec::Extent::row},
              {.name = "exp_avg_sq_col", .extent = spec::Extent::column}};
    case OptimizerType::muon:
      if (!unit.is_block) break;
      return {{.name = "momentum", .covers = spec::Covers::with_decay},
              {.name = std::string(spec::adam_moments[0]), .covers = spec::Covers::without_decay},
              {.name = std::string(spec::adam_moments[1]), .covers = spec::Covers::without_decay}};
  }
  return moments_of(config.state, unit);
}

spec::StateOf state_of(const OptimizerConfig& config) {
  return [config](const spec::Unit& unit) {
    std::vector<spec::StateTensor> state{{std::string(spec::weights_tensor)}};
    for (spec::StateTensor& own : own_state_of(config, unit)) state.push_back(std::move(own));
    if (config.ema > 0) state.push_back({std::string(spec::mean_tensor)});
    return state;
  };
}

double max_grad_norm_of(const OptimizerConfig& config) {
  return config.max_grad_norm.value_or(config.type == OptimizerType::adafactor ? 0 : 1);
}

AdafactorNumbers adafactor_numbers(const OptimizerConfig& config, bool language_model) {
  return {.update_clip = config.update_clip.value_or(1),
          .weight_decay = config.weight_decay.value_or(language_model ? 0.1 : 0.0),
          .scales_by_weights = config.relative_step,
          .ema = config.ema};
}

AdamwNumbers resolve(const OptimizerConfig& config, bool language_model, bool has_master) {
  return {.beta1 = config.beta1,
          .beta2 = config.beta2.value_or(language_model ? 0.95 : 0.98),
          .epsilon = config.epsilon.value_or(has_master ? 1e-8 : 1e-4),
          .weight_decay = config.weight_decay.value_or(language_model ? 0.1 : 0.0),
          .ema = config.ema,
          .update_clip = config.update_clip.value_or(0),
          .state = config.state};
}

}  // namespace argosy::optim
