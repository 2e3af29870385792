#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "model/model.hpp"

/// The model once more, as plainly as can be: fp64, dense masks, autograd. What gradients and losses are compared with.
namespace argosy::test {

using Weights = std::map<std::string, at::Tensor>;

/// Copies of all parameters in fp64 that need a gradient.
[[nodiscard]] Weights leaves_of(model::Model& model);

/// Scaled sum of the loss, without dropout.
[[nodiscard]] at::Tensor reference_loss(const spec::Architecture& shape, const Weights& weights,
                                        const model::Inputs& inputs, const model::Pass& pass);

}  // namespace argosy::test
