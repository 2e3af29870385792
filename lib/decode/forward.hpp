#pragma once

#include "model/forward.hpp"

/// A forward pass in the memory of one unit of weights: model::Forward for comparisons, not for speed.
namespace argosy::decode {

/// Reads each unit when a visit needs it, and drops it afterwards. fp32, on the CPU, without dropout. Not collective.
[[nodiscard]] std::vector<model::Outputs> forward(const spec::ModelSpec& spec, const model::WeightSource& weights,
                                                  std::span<const model::Example> examples);

}  // namespace argosy::decode
