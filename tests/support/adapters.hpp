#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/matmul.h>

#include <string>

#include "model/layers.hpp"
#include "model/model.hpp"
#include "model/segment.hpp"

namespace argosy::test {

/// A model of which nothing is trained but a low-rank matrix beside each decoder block (LoRA, arXiv:2106.09685): block
/// and matrix are units of one visit.
inline spec::ModelSpec with_adapters(const spec::Architecture& architecture) {
  spec::ModelSpec spec(architecture);
  for (spec::Unit& unit : spec.units) unit.frozen = true;
  constexpr std::int64_t rank = 3;
  for (spec::Visit& visit : spec.visits) {
    if (visit.kind != spec::VisitKind::decoder_block) continue;
    const std::int64_t width = architecture.width;
    const spec::Parameter down{{visit.name + "/adapter/down", {rank, width}}, spec::Role::ffn_in, {.deviation = 0.2}},
        up{{visit.name + "/adapter/up", {width, rank}}, spec::Role::ffn_out, {.deviation = 0.2}};
    visit.units.push_back(spec.units.size());
    spec.units.push_back({visit.name + ".adapter", {down, up}});
  }
  return spec;
}

/// The code of such a model: the input x of a block becomes x + x·downᵀ·upᵀ. Any other model stays as it is.
inline void use_adapters(model::Model& model) {
  for (model::Visit& visit : model.visits()) {
    if (visit.units.size() < 2) continue;
    model::Unit& unit = model.units()[visit.units[1]];
    model::Parameter* const down = unit.parameter(spec::Role::ffn_in);
    model::Parameter* const up = unit.parameter(spec::Role::ffn_out);
    if (down == nullptr || up == nullptr) continue;
    visit.forward = [down, up, inner = std::move(visit.forward)](const model::State& state, const model::Inputs& inputs,
                                                                 model::Pass& pass) {
      model::State in = state;
      {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        in.x = state.x + state.x.matmul(down->weight.t()).matmul(up->weight.t());
      }
      if (model::recording()) {
        model::attach({in.x}, {state.x}, [down, up, x = state.x.detach()](const model::Tensors& gradients) {
          const auto add = [](model::Parameter& parameter, const at::Tensor& left, const at::Tensor& right) {
            const model::GradientSlot slot = model::claim_gradient(parameter);
            const at::Tensor product = left.flatten(0, 1).t().matmul(right.flatten(0, 1)).to(at::kFloat);
            slot.accumulate ? slot.gradient.add_(product) : slot.gradient.copy_(product);
          };
          const at::Tensor& g = gradients[0];
          const at::Tensor inner_gradient = g.matmul(up->weight);
          add(*up, g, x.matmul(down->weight.t()));
          add(*down, inner_gradient, x);
          return model::Tensors{g + inner_gradient.matmul(down->weight)};
        });
      }
      return inner(in, inputs, pass);
    };
  }
}

}  // namespace argosy::test
