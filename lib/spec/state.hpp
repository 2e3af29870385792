#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"

/// What training keeps of a parameter, as data: an optimizer declares it (optim/optim_config.hpp), buffers allocate it,
/// the planner counts its bytes, and checkpoints store it under these names.
namespace argosy::spec {

/// The tensors that are not an optimizer's: the weights themselves, and their running mean.
inline constexpr std::string_view weights_tensor = "master", mean_tensor = "ema";
/// Of Adam. All that checkpoints knew before format 1.3.
inline constexpr std::array<std::string_view, 2> adam_moments{"exp_avg", "exp_avg_sq"};

/// One element an element of the parameter.
struct StateTensor {
  std::string name;
  DType dtype = DType::f32;
};

}  // namespace argosy::spec
