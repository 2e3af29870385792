#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

/// One visit as one node of the autograd graph: outputs computed without autograd, a backward function written by hand.
namespace argosy::model {

using Tensors = std::vector<at::Tensor>;

/// Makes `outputs` (fresh tensors) the outputs of one node whose inputs are `inputs` (may be undefined, or need no
/// gradient: the outputs need one all the same). backward: gradients of the outputs (undefined: zero) → gradients of
/// the inputs. It is called once and dropped.
void attach(const Tensors& outputs, const Tensors& inputs, std::function<Tensors(const Tensors&)> backward);

/// Whether gradients are being recorded; false under no-grad and inference mode.
[[nodiscard]] bool recording();

}  // namespace argosy::model
