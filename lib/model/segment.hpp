#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

/// Makes a visit one node of the autograd graph: its outputs are computed without autograd, and its backward function
/// is written by hand.
namespace argosy::model {

using Tensors = std::vector<at::Tensor>;

/// Makes `outputs` (new tensors) the outputs of one node with the inputs `inputs`. An input may be undefined or need no
/// gradient; the outputs always need one. `backward` maps the gradients of the outputs (undefined: zero) to those of
/// the inputs. It is called once and then freed.
void attach(const Tensors& outputs, const Tensors& inputs, std::function<Tensors(const Tensors&)> backward);

/// Whether gradients are being recorded; false under no-grad and inference mode.
[[nodiscard]] bool recording();

}  // namespace argosy::model
