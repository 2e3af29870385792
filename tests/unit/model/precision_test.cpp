#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "core/random.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

/// Bounds of the rms difference: of the reference's rms, or as it is, whichever is wider; ten times that for a single
/// element. A large framework's bounds for bf16 against fp32, two layers of width 256.
struct Bounds {
  double relative, absolute;
};
constexpr Bounds forward_bounds{1.5e-2, 1.5e-3}, backward_bounds{1.5e-2, 1e-5}, embedding_bounds{5e-2, 1e-4},
    bias_bounds{2e-2, 1e-3}, gradient_bounds{2e-2, 5e-5};

void expect_near(const at::Tensor& value, const at::Tensor& reference, const Bounds& bounds, const std::string& what) {
  const at::Tensor difference = value.to(at::kDouble) - reference.to(at::kDouble);
  const double rms = difference.square().mean().sqrt().item<double>(),
               size = reference.to(at::kDouble).square().mean().sqrt().item<double>();
  const double bound = std::max(bounds.relative * size, bounds.absolute);
  EXPECT_LE(rms, bound) << what << ", rms " << size << ", relative " << rms / size;
  EXPECT_LE(difference.abs().max().item<double>(), 10 * bound) << what;
}

model::Inputs eight_rows(const spec::Architecture& shape, std::uint64_t step) {
  constexpr std::int64_t rows = 8, width = 64;
  RandomStream random(3, step);
  const auto ids = [&] {
    const at::Tensor all = at::full({rows, width}, 0, at::kLong);
    for (std::int64_t i = 0; i < rows * width; ++i)
      all.mutable_data_ptr<std::int64_t>()[i] =
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shape.vocabulary.pieces)));
    return all;
  };
  model::Inputs inputs;
  inputs.target_in = ids();
  inputs.target_labels = ids();
  inputs.target_lengths = at::full({rows}, width, at::kLong);
  if (shape.type == spec::ModelType::encoder_decoder) {
    inputs.source = ids();
    inputs.source_lengths = at::full({rows}, width, at::kLong);
  }
  return inputs;
}

Trace traced(model::Model& model, const model::Inputs& inputs) {
  model::Pass pass;
  pass.training = true;
  pass.loss_scale = 1.0 / (8 * 64);
  Trace trace;
  run_micro_batch(model, inputs, pass, {}, &trace);
  return trace;
}

spec::Architecture large(spec::ModelType type) {
  return with(two_layers({.type = type, .width = 256, .ff = 4 * 256, .heads = 8}, 64, 500), [](auto& s) {
    if (s.activation == spec::Activation::relu) s.activation = spec::Activation::swish;  // no units that flip
  });
}
spec::Architecture large_t5() {
  return with(large(spec::ModelType::encoder_decoder), [](auto& s) {
    s.norm = spec::Norm::rms_norm;
    s.norm_position = spec::NormPosition::pre;
    s.activation = spec::Activation::geglu;
    s.bias = false;
    s.encoder_position = s.decoder_position = spec::Position::t5;
  });
}

class Precision : public testing::TestWithParam<std::pair<const char*, spec::Architecture>> {};

TEST_P(Precision, Bfloat16IsAsNearFloatAsALargeFrameworkDemands) {
  const spec::Architecture& shape = GetParam().second;
  BoundModel wide(shape), narrow(shape, at::kBFloat16);
  for (std::size_t u = 0; u < wide.weights.size(); ++u) {  // norms and biases as a run starts
    for (const model::Parameter& parameter : wide.model->units()[u].parameters())
      if (parameter.shape.size() == 1) parameter.weight.fill_(parameter.name.ends_with("gamma") ? 1 : 0);
    narrow.weights[u].copy_(wide.weights[u]);
  }
  for (std::uint64_t step = 0; step < 2; ++step) {
    const model::Inputs inputs = eight_rows(shape, step);
    const Trace expected = traced(*wide.model, inputs), found = traced(*narrow.model, inputs);
    const std::string where = " in step " + std::to_string(step);
    for (const auto& [name, x] : expected.forward) expect_near(found.forward.at(name), x, forward_bounds, name + where);
    for (const auto& [name, dx] : expected.backward)
      expect_near(found.backward.at(name), dx, backward_bounds, "behind " + name + where);
    for (std::size_t u = 0; u < wide.gradients.size(); ++u) {
      for (const model::Parameter& parameter : wide.model->units()[u].parameters()) {
        const bool embeds = parameter.name.find("embeddings") != std::string::npos;
        const Bounds& bounds = embeds ? embedding_bounds : parameter.shape.size() == 1 ? bias_bounds : gradient_bounds;
        const at::Tensor gradient = narrow.gradient(parameter.name);
        EXPECT_EQ(gradient.scalar_type(), at::kFloat);
        expect_near(gradient, parameter.gradient, bounds, parameter.name + where);
        // Both go on from the same weights.
        parameter.weight.sub_(parameter.gradient, 0.05);
      }
      narrow.weights[u].copy_(wide.weights[u]);
    }
    wide.expect_fresh_gradients();
    narrow.expect_fresh_gradients();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Precision,
                         testing::Values(std::pair{"decoder", large(spec::ModelType::decoder)},
                                         std::pair{"encoder_decoder", large(spec::ModelType::encoder_decoder)},
                                         std::pair{"t5", large_t5()}),
                         [](const auto& each) { return std::string(each.param.first); });

}  // namespace
}  // namespace argosy::test
