#include "model/neftune.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/elementwise.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

/// What the visit of that name returns as x, when all before it have run.
at::Tensor embedded(BoundModel& bound, const model::Inputs& inputs, const model::Pass& pass, const char* visit) {
  const at::NoGradGuard no_grad;
  model::State state;
  model::Pass used = pass;
  for (const model::Visit& each : bound.model->visits()) {
    state = each.forward(state, inputs, used);
    if (each.name == visit) return state.x;
  }
  return {};
}

/// Two examples in the first row, one in the second.
model::Inputs packed_inputs() {
  model::Inputs inputs;
  inputs.target_in = at::tensor({1, 4, 7, 1, 9, 12, 3, 1, 5, 0, 0, 0, 0, 0}, at::kLong).view({2, 7});
  inputs.target_labels = inputs.target_in;
  inputs.target_lengths = at::tensor({7, 2}, at::kLong);
  inputs.positions = at::tensor({0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 0, 0, 0, 0}, at::kLong).view({2, 7});
  inputs.segments = at::tensor({0, 0, 0, 1, 1, 1, 1, 0, 0, -1, -1, -1, -1, -1}, at::kLong).view({2, 7});
  return inputs;
}

TEST(Neftune, NoiseShrinksWithTheLengthOfTheExampleAndTheWidth) {
  const at::Tensor scales =
      model::noise_scales(6, at::zeros({2, 4, 9}), at::tensor({4, 1}, at::kLong), /*segments=*/{});
  // 6/(√4·√9) at four positions, 6/√9 at one; the width of the padded rows does not count
  EXPECT_TRUE(at::equal(scales, at::tensor({1.0F, 1.0F, 1.0F, 1.0F, 2.0F, 0.0F, 0.0F, 0.0F}).view({2, 4})));
  const model::Inputs packed = packed_inputs();
  const at::Tensor of_packed = model::noise_scales(12, at::zeros({2, 7, 4}), packed.target_lengths, packed.segments);
  const auto third = static_cast<float>(6 / std::sqrt(3.0)), half = static_cast<float>(6 / std::sqrt(2.0));
  EXPECT_LT(relative_error(of_packed, at::tensor({third, third, third, 3.0F, 3.0F, 3.0F, 3.0F,  //
                                                  half, half, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F})
                                          .view({2, 7})),
            1e-7);
  EXPECT_EQ(of_packed[1].narrow(0, 2, 5).abs().max().item<float>(), 0) << "behind the end";
}

TEST(Neftune, TrainingAddsNoiseToEmbeddedIdsAndNothingElseDoes) {
  struct Site {
    const char* visit;
    spec::Architecture shape;
    model::Inputs inputs;
    at::Tensor model::Inputs::*lengths;
    std::int64_t number;
  };
  const spec::Architecture translation = with(tiny_translation(), [](spec::Architecture&) {}),
                           language = with(tiny_language_model(), [](spec::Architecture&) {});
  for (const Site& site : {Site{"source", translation, ragged_inputs(translation), &model::Inputs::source_lengths, 0},
                           Site{"target", translation, ragged_inputs(translation), &model::Inputs::target_lengths, 3},
                           Site{"target", language, ragged_inputs(language), &model::Inputs::target_lengths, 0},
                           Site{"target", language, packed_inputs(), &model::Inputs::target_lengths, 0}}) {
    constexpr double alpha = 3;
    spec::Architecture noisy_shape = site.shape;
    noisy_shape.neftune_alpha = alpha;
    BoundModel without(site.shape), with_noise(noisy_shape);
    model::Pass pass = training_pass();
    pass.micro_batch = 2;
    const at::Tensor before = embedded(without, site.inputs, pass, site.visit),
                     after = embedded(with_noise, site.inputs, pass, site.visit);
    at::Tensor expected = before.clone();
    const at::Tensor scales = model::noise_scales(alpha, before, site.inputs.*site.lengths, site.inputs.segments);
    kernels::add_noise_(expected, scales, {pass.seed, pass.step, pass.micro_batch, 4 * site.number + 1});
    EXPECT_TRUE(at::equal(after, expected)) << site.visit;
    const at::Tensor moved = (after - before).abs();
    EXPECT_TRUE(moved.lt(scales.unsqueeze(2) + 1e-6).all().item<bool>());
    EXPECT_GT(moved.max().item<double>(), 0.8 * scales.max().item<double>());
    EXPECT_TRUE(at::equal(embedded(with_noise, site.inputs, pass, site.visit), after)) << "once more";
    pass.micro_batch = 3;
    EXPECT_FALSE(at::equal(embedded(with_noise, site.inputs, pass, site.visit), after));
    pass.training = false;
    EXPECT_TRUE(at::equal(embedded(with_noise, site.inputs, pass, site.visit),
                          embedded(without, site.inputs, pass, site.visit)));
  }
}

}  // namespace
}  // namespace argosy::test
