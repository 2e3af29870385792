#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/matmul.h>

#include <functional>
#include <string>

#include "model/layers.hpp"
#include "model/model.hpp"
#include "model/segment.hpp"

namespace argosy::test {

/// A model of which nothing is trained but a low-rank matrix next to each decoder block (LoRA, arXiv:2106.09685): block
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

/// The code of such a model: the input x of a block becomes x + x·downᵀ·upᵀ. Any other model stays as it is.
inline void use_adapters(model::Model& model) {
  for (model::Visit& visit : model.visits()) {
    if (visit.units.size() < 2) continue;
    model::Unit& unit = model.units()[visit.units[1]];
    model::Parameter* const down = unit.parameter(spec::Role::ffn_in);
    model::Parameter* const up = unit.parameter(spec::Role::ffn_out);
    if (down == nullptr || up == nullptr) continue;
    put_before(
        visit, [=](const at::Tensor& x) { return x + x.matmul(down->weight.t()).matmul(up->weight.t()); },
        [=](const at::Tensor& x, const at::Tensor& g) {
          const auto product = [](const at::Tensor& left, const at::Tensor& right) {
            return left.flatten(0, 1).t().matmul(right.flatten(0, 1));
          };
          const at::Tensor inner_gradient = g.matmul(up->weight);
          add_gradient(*up, product(g, x.matmul(down->weight.t())));
          add_gradient(*down, product(inner_gradient, x));
          return g + inner_gradient.matmul(down->weight);
        });
  }
}

}  // namespace argosy::test
