#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <boost/describe/enum_to_string.hpp>

#include "core/random.hpp"
#include "unit/model/support.hpp"

/// Every kind of positions learns to copy: the target is the source, so that the decoder has to find its place in it.
namespace argosy::test {
namespace {

using spec::Position;

/// Rows of 2 to 7 random ids and the end.
model::Inputs rows_to_copy(const spec::Architecture& shape, std::uint64_t stream) {
  constexpr std::int64_t rows = 32, width = 8;
  RandomStream random(5, stream);
  model::Inputs inputs;
  inputs.source = at::full({rows, width}, shape.vocabulary.filler(), at::kLong);
  inputs.target_in = inputs.source.clone();
  inputs.target_labels = at::full({rows, width}, -1, at::kLong);
  inputs.source_lengths = at::empty({rows}, at::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto length = static_cast<std::int64_t>(3 + random.below(6));
    inputs.source_lengths[row] = length;
    inputs.target_in[row][0] = shape.vocabulary.start;
    for (std::int64_t t = 0; t < length; ++t) {
      const auto live = static_cast<std::uint64_t>(shape.vocabulary.pieces) - 3;
      const std::int64_t id = t + 1 < length ? 3 + static_cast<std::int64_t>(random.below(live)) : shape.vocabulary.eos;
      inputs.source[row][t] = id;
      inputs.target_labels[row][t] = id;
      if (t + 1 < width) inputs.target_in[row][t + 1] = id;
    }
  }
  inputs.target_lengths = inputs.source_lengths;
  return inputs;
}

/// Share of right tokens in new rows after `steps` steps of Adam.
double accuracy(const spec::Architecture& shape, int steps) {
  BoundModel bound(shape);
  std::vector<at::Tensor> m, v;
  for (const at::Tensor& flat : bound.weights) {
    m.push_back(at::zeros_like(flat));
    v.push_back(at::zeros_like(flat));
  }
  for (const at::Tensor& flat : bound.gradients) flat.zero_();  // padding
  for (int step = 1; step <= steps; ++step) {
    const model::Inputs inputs = rows_to_copy(shape, static_cast<std::uint64_t>(step));
    model::Pass pass = training_pass();
    pass.loss_scale = 1 / inputs.source_lengths.sum().item<double>();
    run_micro_batch(*bound.model, inputs, pass);
    const double lr = 5e-3 * std::min(1.0, step / 50.0), one = 1 - std::pow(0.9, step), two = 1 - std::pow(0.98, step);
    for (std::size_t u = 0; u < m.size(); ++u) {
      const at::Tensor& gradient = bound.gradients[u];
      m[u].mul_(0.9).add_(gradient, 0.1);
      v[u].mul_(0.98).addcmul_(gradient, gradient, 0.02);
      bound.weights[u].addcdiv_(m[u] / one, (v[u] / two).sqrt_().add_(1e-8), -lr);
    }
    bound.expect_fresh_gradients();
  }
  const at::NoGradGuard no_grad;
  model::Pass pass;
  model::State state;
  const model::Inputs inputs = rows_to_copy(shape, 0);
  for (const model::Visit& visit : bound.model->visits()) state = visit.forward(state, inputs, pass);
  return pass.correct_count.item<double>() / pass.token_count.item<double>();
}

spec::Architecture small(Position encoder, Position decoder) {
  spec::ModelConfig config =
      model_config({.width = 32, .ff = 64, .heads = 4, .encoder_layers = 2, .decoder_layers = 1});
  config.vocab_multiple = 8;
  config.max_positions = 16;
  config.norm_position = spec::NormPosition::pre;
  config.encoder.position = encoder;
  config.decoder.position = decoder;
  return with(spec::resolve(config, 15), [](spec::Architecture&) {});
}

class Copy : public testing::TestWithParam<std::pair<Position, Position>> {};

TEST_P(Copy, IsLearned) { EXPECT_GT(accuracy(small(GetParam().first, GetParam().second), 520), 0.9); }

std::string text_of(Position position) { return boost::describe::enum_to_string(position, ""); }

INSTANTIATE_TEST_SUITE_P(
    Positions, Copy,
    testing::Values(std::pair{Position::sinusoidal, Position::sinusoidal},
                    std::pair{Position::sinusoidal_fairseq, Position::sinusoidal_fairseq},
                    std::pair{Position::learned, Position::learned}, std::pair{Position::rope, Position::rope},
                    std::pair{Position::alibi, Position::alibi}, std::pair{Position::t5, Position::t5},
                    std::pair{Position::rope, Position::none}),
    [](const auto& each) { return text_of(each.param.first) + "_then_" + text_of(each.param.second); });

TEST(CopyTask, IsNotLearnedWithoutPositionsInTheEncoder) {
  EXPECT_LT(accuracy(small(Position::none, Position::sinusoidal), 450), 0.7);
}

}  // namespace
}  // namespace argosy::test
