#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "config/config.hpp"
#include "spec/model_spec.hpp"

/// The `optimizer` section of the configuration. Torch-free.
namespace argosy::optim {

enum class OptimizerType { adamw, adafactor, muon };
BOOST_DESCRIBE_ENUM(OptimizerType, adamw, adafactor, muon)
enum class StateType { fp32, bf16, int8, int4 };
BOOST_DESCRIBE_ENUM(StateType, fp32, bf16, int8, int4)

struct SkipConfig {
  double abs = 0;     // 0: off
  double factor = 0;  // 0: off
  std::int64_t after = 500;
  std::int64_t max_consecutive = 20;
};
BOOST_DESCRIBE_STRUCT(SkipConfig, (), (abs, factor, after, max_consecutive))

struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  std::optional<double> weight_decay{};  // language model 0.1, translation 0; matrices only
  double beta1 = 0.9;
  std::optional<double> beta2{};          // language model 0.95, translation 0.98
  std::optional<double> epsilon{};        // 1e-8, bf16_pure 1e-4; on the mean over tgt_tokens
  std::optional<double> max_grad_norm{};  // 0: off; adamw, muon 1, adafactor 0
  std::optional<double> update_clip{};    // adamw 0: off, adafactor 1
  StateType state = StateType::fp32;      // adamw
  double momentum = 0.95;                 // muon
  bool relative_step = false;             // adafactor
  bool warmup_init = false;               // adafactor, with relative_step
  double ema = 0;                         // 0: off
  SkipConfig skip{};
};
BOOST_DESCRIBE_STRUCT(OptimizerConfig, (),
                      (type, weight_decay, beta1, beta2, epsilon, max_grad_norm, update_clip, state, momentum,
                       relative_step, warmup_init, ema, skip))

std::span<const config::KeyText> key_texts(const SkipConfig&);
std::span<const config::KeyText> key_texts(const OptimizerConfig&);
void validate(const SkipConfig&, config::Problems&);
void validate(const OptimizerConfig&, config::Problems&);

/// The tensors that the optimizer keeps for the parameters of a unit besides the weights.
[[nodiscard]] std::vector<spec::StateTensor> own_state_of(const OptimizerConfig& config, const spec::Unit& unit);
/// All tensors kept and stored for a unit, in order: weights, the optimizer's own, a running mean.
[[nodiscard]] spec::StateOf state_of(const OptimizerConfig& config);

/// Units with matrices that are updated as a whole: the blocks under muon.
[[nodiscard]] std::set<std::size_t> whole_units(const OptimizerConfig& config, const spec::ModelSpec& spec);

/// Largest norm of the gradient; 0: any.
[[nodiscard]] double max_grad_norm_of(const OptimizerConfig& config);

/// The numbers of AdamW. Defaults depend on the kind of model and on whether the weights have an fp32 master.
struct AdamwNumbers {
  double beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double ema = 0;          // decay of the running mean of the weights; 0: none
  double update_clip = 0;  // 0: off
  StateType state = StateType::fp32;
};
[[nodiscard]] AdamwNumbers resolve(const OptimizerConfig& config, bool language_model, bool has_master);

struct AdafactorNumbers {
  double update_clip = 1;  // 0: off
  double weight_decay = 0;
  bool scales_by_weights = false;  // the step, by the root mean square of the matrix
  double ema = 0;
};
[[nodiscard]] AdafactorNumbers adafactor_numbers(const OptimizerConfig& config, bool language_model);

}  // namespace argosy::optim
