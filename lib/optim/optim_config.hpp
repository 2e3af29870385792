#pragma once

#include <boost/describe.hpp>
#include <optional>
#include <span>

#include "config/config.hpp"

/// The `optimizer` section. Torch-free.
namespace argosy::optim {

enum class OptimizerType { adamw };
BOOST_DESCRIBE_ENUM(OptimizerType, adamw)

struct SkipConfig {
  double abs = 0;      // skip a step whose norm is above; 0: off
  double factor = 0;   // skip a step whose norm is above factor × running mean; 0: off
  std::int64_t after = 500;
  std::int64_t max_consecutive = 20;
};
BOOST_DESCRIBE_STRUCT(SkipConfig, (), (abs, factor, after, max_consecutive))

struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double weight_decay = 0.0;  // matrices only
  double beta1 = 0.9;
  std::optional<double> beta2;      // 0.95 LM, 0.98 MT
  double epsilon = 1e-8;            // on the token mean
  double max_grad_norm = 1.0;       // 0: no clipping
  SkipConfig skip;
};
BOOST_DESCRIBE_STRUCT(OptimizerConfig, (), (type, weight_decay, beta1, beta2, epsilon, max_grad_norm, skip))

std::span<const config::KeyText> key_texts(const SkipConfig&);
std::span<const config::KeyText> key_texts(const OptimizerConfig&);
void validate(const OptimizerConfig&, config::Problems&);

}  // namespace argosy::optim
