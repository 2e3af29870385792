#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <map>

#include "core/random.hpp"
#include "support/small_model.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

/// Bounds of the rms difference: of the reference's rms, or as it is, whichever is wider; ten times that for a single
/// element. A large framework's bounds for bf16 beside fp32, two layers of width 256.
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

spec::Architecture two_layers(spec::ModelType type) {
  const bool translation = type == spec::ModelType::encoder_decoder;
  spec::ModelConfig config = model_config({.type = type,
                                           .width = 256,
                                           .ff = 4 * 256,
                                           .heads = 8,
                                           .encoder_layers = translation ? 2 : 0,
                                           .decoder_layers = 2});
  config.max_positions = 64;
  config.dropout = 0.0;
  if (translation) config.activation = spec::Activation::swish;  // of relu a unit that flips is no rounding error
  if (!translation) config.kv_heads = 2;
  return resolve(config, 500);
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

/// What a micro-batch leaves, by name: outputs of visits, gradients of their inputs.
struct Trace {
  std::map<std::string, at::Tensor> forward, backward;
};

Trace traced(model::Model& model, const model::Inputs& inputs) {
  model::Pass pass;
  pass.training = true;
  pass.loss_scale = 1.0 / (8 * 64);
  Trace trace;
  std::vector<model::State> before, after;
  model::State state;
  for (const model::Visit& visit : model.visits()) {
    before.push_back(detached(state));
    state = visit.forward(before.back(), inputs, pass);
    trace.forward[visit.name] = state.x.detach();
    after.push_back(state);
  }
  at::Tensor dx, dmemory;
  for (std::size_t i = model.visits().size(); i-- > 0;) {
    back_up(model.visits()[i], before[i], after[i], dx, dmemory);
    if (dx.defined()) trace.backward[model.visits()[i].name] = dx;
  }
  if (dmemory.defined()) trace.backward["memory"] = dmemory;
  return trace;
}

class Precision : public testing::TestWithParam<spec::ModelType> {};

TEST_P(Precision, Bfloat16IsAsNearFloatAsALargeFrameworkDemands) {
  const spec::Architecture shape = two_layers(GetParam());
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
        expect_near(narrow.gradient(parameter.name), parameter.gradient, bounds, parameter.name + where);
        // Both go on from the same weights.
        parameter.weight.sub_(parameter.gradient, 0.05);
      }
      narrow.weights[u].copy_(wide.weights[u]);
    }
    wide.expect_fresh_gradients();
    narrow.expect_fresh_gradients();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Precision, testing::Values(spec::ModelType::decoder, spec::ModelType::encoder_decoder),
                         [](const auto& each) -> std::string {
                           return boost::describe::enum_to_string(each.param, "");
                         });

}  // namespace
}  // namespace argosy::test
