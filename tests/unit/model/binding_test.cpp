#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <limits>

#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

at::Tensor poisoned_like(const at::Tensor& flat) {
  return at::full_like(flat, std::numeric_limits<double>::quiet_NaN());
}

class Binding : public testing::TestWithParam<spec::Architecture> {};

/// Weights move to another buffer after the forward pass, gradients get one only then: as in ZeRO 2 and 3.
TEST_P(Binding, NothingOfTheForwardPassRefersToItsBuffers) {
  BoundModel still(GetParam()), moving(GetParam());
  const model::Inputs inputs = ragged_inputs(GetParam());
  model::Pass pass = training_pass();
  const double expected = run_micro_batch(*still.model, inputs, pass);
  std::vector<model::Unit>& units = moving.model->units();
  const std::size_t head = moving.model->visits().back().units.front();  // writes gradients in its forward pass
  for (std::size_t i = 0; i < units.size(); ++i)
    if (i != head) units[i].bind_gradients({});
  const double loss = run_micro_batch(*moving.model, inputs, pass, [&] {
    for (std::size_t i = 0; i < units.size(); ++i) {
      const at::Tensor weights = moving.weights[i].clone();
      moving.weights[i].copy_(poisoned_like(weights));
      moving.weights[i] = weights;
      units[i].bind_weights(weights);
      const at::Tensor gradients = i == head ? moving.gradients[i].clone() : poisoned_like(moving.gradients[i]);
      moving.gradients[i].copy_(poisoned_like(gradients));
      moving.gradients[i] = gradients;
      units[i].bind_gradients(gradients);
    }
  });
  EXPECT_EQ(loss, expected);
  expect_gradients_near(moving, still, 0);
}

TEST_P(Binding, EachHalfLeavesTheOther) {
  BoundModel bound(GetParam());
  model::Unit& unit = bound.model->units().front();
  const model::Parameter before = unit.parameters().front();
  unit.bind_weights(bound.weights.front().clone());
  EXPECT_FALSE(unit.parameters().front().weight.is_alias_of(before.weight));
  EXPECT_TRUE(unit.parameters().front().gradient.is_same(before.gradient));
  unit.bind_gradients({});
  EXPECT_FALSE(unit.parameters().front().gradient.defined());
  EXPECT_TRUE(at::equal(unit.parameters().front().weight, before.weight));
  EXPECT_ANY_THROW(unit.bind_weights(bound.weights.front().narrow(0, 0, 1)));
}

spec::Architecture untied(spec::Architecture shape) {
  shape.tie_embeddings = shape.tie_inputs = false;
  shape.norm_position = spec::NormPosition::pre;
  return shape;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Binding,
                         testing::Values(tiny_translation(), untied(tiny_translation()), tiny_language_model(),
                                         untied(tiny_t5()),
                                         untied(tiny_with(spec::Position::learned, spec::Position::learned))));

}  // namespace
}  // namespace argosy::test
