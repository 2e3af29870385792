#include "decode/forward.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <numeric>

#include "decode/likelihood.hpp"
#include "unit/decode/models.hpp"

namespace argosy::test {
namespace {

/// The weights of a bound model.
class BoundWeights final : public model::WeightSource {
 public:
  explicit BoundWeights(model::Model& model) : model_(model) {}
  void read(const spec::Parameter& parameter, std::int64_t begin, std::span<float> to) const override {
    for (model::Unit& unit : model_.units()) {
      for (const model::Parameter& bound : unit.parameters()) {
        if (bound.name != parameter.name) continue;
        const at::Tensor flat = bound.weight.reshape({-1}).narrow(0, begin, std::ssize(to)).contiguous();
        std::copy_n(flat.const_data_ptr<float>(), to.size(), to.begin());
        return;
      }
    }
    ADD_FAILURE() << parameter.name;
  }

 private:
  model::Model& model_;
};

class Forward : public testing::TestWithParam<spec::ModelType> {};

TEST_P(Forward, UnitByUnitGivesTheBitsOfTheWholeModel) {
  BoundModel bound(shape_of(GetParam(), 21), at::kFloat, 5);
  const spec::Architecture& shape = bound.model->architecture();
  const bool pairs = shape.type == spec::ModelType::encoder_decoder;
  std::vector<model::Example> examples{{{1, 7, 0}, {3, 4, 5, 0}}, {{4, 9, 12, 3, 0}, {20}}};
  if (!pairs) {
    for (model::Example& example : examples) example.source.clear();
  }
  const auto outputs = decode::forward(bound.model->spec(), BoundWeights(*bound.model), examples);
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs, decode::forward(bound.model->spec(), BoundWeights(*bound.model), examples));
  const c10::InferenceMode guard;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    std::vector<std::int64_t> fed{shape.vocabulary.start};
    fed.insert(fed.end(), examples[i].target.begin(), examples[i].target.end() - 1);
    model::Inputs inputs;
    inputs.target_in = at::tensor(fed, at::kLong).unsqueeze(0);
    if (pairs) {
      inputs.source =
          at::tensor(std::vector<std::int64_t>(examples[i].source.begin(), examples[i].source.end()), at::kLong)
              .unsqueeze(0);
      inputs.source_lengths = at::tensor({std::ssize(examples[i].source)}, at::kLong);
    }
    model::State state;
    for (const model::Visit& visit : bound.model->visits()) {
      model::Pass pass;
      if (visit.kind != spec::VisitKind::head) state = visit.forward(state, inputs, pass);
    }
    const at::Tensor hidden = state.x.contiguous();
    EXPECT_EQ(outputs[i].hidden,
              std::vector<float>(hidden.const_data_ptr<float>(), hidden.const_data_ptr<float>() + hidden.numel()));
    model::Inference inference(*bound.model);
    decode::GivenTarget given{examples[i].source, examples[i].target};
    if (!pairs) given.source = {narrow<std::int32_t>(shape.vocabulary.start)};
    const std::vector<float> log_p = decode::likelihoods(inference, {given}).front().log_p;
    const double nll = -std::accumulate(log_p.begin(), log_p.end(), 0.0);
    EXPECT_NEAR(outputs[i].nll, nll, 1e-5 * static_cast<double>(fed.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Forward, testing::Values(spec::ModelType::encoder_decoder, spec::ModelType::decoder),
                         [](const auto& test) {
                           return std::string(test.param == spec::ModelType::decoder ? "decoder" : "translation");
                         });

}  // namespace
}  // namespace argosy::test
