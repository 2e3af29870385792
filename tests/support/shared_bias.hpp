#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "model/layers.hpp"
#include "model/segment.hpp"

namespace argosy::test {

/// A model whose decoder blocks all add one vector to their input, as the blocks of T5 share a bias: a unit that
/// several visits read next to their own.
inline spec::ModelSpec with_shared_bias(const spec::Architecture& architecture) {
  spec::ModelSpec spec(architecture);
  const spec::Parameter bias{{"decoder/shared_bias", {architecture.width}, false}, spec::Role::linear_bias};
  spec.units.push_back({"decoder.shared", {bias}});
  for (spec::Visit& visit : spec.visits) {
    if (visit.kind == spec::VisitKind::decoder_block) visit.units.push_back(spec.units.size() - 1);
  }
  return spec;
}

/// The code of such a model; any other stays as it is.
inline void use_shared_bias(model::Model& model) {
  for (model::Visit& visit : model.visits()) {
    if (visit.units.size() < 2) continue;
    model::Parameter& bias = model.units()[visit.units[1]].parameters().front();
    visit.forward = [&bias, inner = std::move(visit.forward)](const model::State& state, const model::Inputs& inputs,
                                                              model::Pass& pass) {
      model::State in = state;
      {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        in.x = state.x + bias.weight;
      }
      if (model::recording()) {
        model::attach({in.x}, {state.x}, [&bias](const model::Tensors& gradients) {
          const model::GradientSlot slot = model::claim_gradient(bias);
          const at::Tensor sum = gradients[0].to(at::kFloat).sum(at::IntArrayRef{0, 1});
          slot.accumulate ? slot.gradient.add_(sum) : slot.gradient.copy_(sum);
          return gradients;
        });
      }
      return inner(in, inputs, pass);
    };
  }
}

}  // namespace argosy::test
