#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <functional>
#include <string>

#include "model/layers.hpp"
#include "model/model.hpp"
#include "model/segment.hpp"
#include "spec/fine_tuning.hpp"

namespace argosy::test {

/// A model of which adapters alone are trained, with values of B that are not 0: else A would have no gradient yet.
inline spec::ModelSpec with_adapters(const spec::Architecture& architecture, spec::LoraConfig config = {.rank = 3}) {
  if (!config.alpha) config.alpha = 2;
  spec::ModelSpec spec = spec::with_adapters(architecture, config);
  for (spec::Unit& unit : spec.units)
    for (spec::Parameter& parameter : unit.parameters)
      if (parameter.role == spec::Role::adapter_up) parameter.initial.deviation = 0.2;
  return spec;
}

/// Adds to what a parameter's gradient is about to become.
inline void add_gradient(model::Parameter& parameter, const at::Tensor& value) {
  const model::GradientSlot slot = model::claim_gradient(parameter);
  slot.accumulate ? slot.gradient.add_(value.to(at::kFloat)) : slot.gradient.copy_(value.to(at::kFloat));
}

/// A visit whose input x becomes `forward(x)` first. `backward` makes the gradient of x from x and that of the result,
/// and adds to the gradients of parameters.
inline void put_before(model::Visit& visit, const std::function<at::Tensor(const at::Tensor&)>& forward,
                       const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& backward) {
  visit.forward = [forward, backward, inner = std::move(visit.forward)](
                      const model::State& state, const model::Inputs& inputs, model::Pass& pass) {
    model::State in = state;
    {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      in.x = forward(state.x);
    }
    if (model::recording()) {
      model::attach({in.x}, {state.x}, [backward, x = state.x.detach()](const model::Tensors& gradients) {
        return model::Tensors{backward(x, gradients[0])};
      });
    }
    return inner(in, inputs, pass);
  };
}

}  // namespace argosy::test
