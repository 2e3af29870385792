#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"

/// The tensors that training keeps for each parameter, as data: the optimizer declares them (optim/optim_config.hpp),
/// buffers allocate them, the planner counts their bytes, and checkpoints store them under these names.
namespace argosy::spec {

/// Tensors that do not belong to an optimizer: the weights themselves, and their running mean.
inline constexpr std::string_view weights_tensor = "master", mean_tensor = "ema";
/// Of Adam; the only ones in checkpoints before format 1.3.
inline constexpr std::array<std::string_view, 2> adam_moments{"exp_avg", "exp_avg_sq"};

/// What a tensor has one element for: an element of a parameter, or a row or a column of a matrix (spec::Matrix).
enum class Extent { element, row, column };

struct StateTensor {
  std::string name;
  DType dtype = DType::f32;
  Extent extent = Extent::element;
};

}  // namespace argosy::spec
