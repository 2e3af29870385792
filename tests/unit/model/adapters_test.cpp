#include "support/adapters.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include "kernels/gemm.hpp"
#include "unit/model/support.hpp"

/// Adapters compute what the merged matrices would: W + scale·B·A, part by part.
namespace argosy::test {
namespace {

/// The weights of `from` in `to`, W + scale·B·A where there are adapters.
void merge(BoundModel& from, BoundModel& to) {
  for (model::Parameter* const down : parameters_of(*from.model)) {
    if (!down->is_adapter()) to.parameter(down->name).weight.copy_(down->weight);
  }
  for (model::Parameter* const down : parameters_of(*from.model)) {
    if (down->role != spec::Role::adapter_down) continue;
    model::Parameter& matrix = to.parameter(down->name.substr(0, down->name.rfind('/')) + "/weight");
    const model::Parameter& up = from.parameter(spec::adapter_names(matrix.name)->up);
    for (const spec::AdapterPart& part : spec::adapter_parts(matrix, *down, up))
      matrix.weight.narrow(0, part.begin, part.rows)
          .add_(at::matmul(up.weight.narrow(0, part.up, part.rows), down->weight.narrow(0, part.down, part.rank)),
                up.scale);
  }
}

class AdapterModels : public testing::TestWithParam<spec::Architecture (*)()> {};

TEST_P(AdapterModels, ComputeAsTheirMergedMatricesAndPassOnTheirGradients) {
  BoundModel adapted(with_adapters(GetParam()())), merged(GetParam()());
  merge(adapted, merged);
  const model::Inputs inputs = ragged_inputs(merged.model->architecture());
  EXPECT_NEAR(train_micro_batch(adapted, inputs), train_micro_batch(merged, inputs), 1e-5);
  int compared = 0;
  for (const model::Parameter* const parameter : parameters_of(*merged.model)) {
    EXPECT_LT(relative_error(adapted.gradient(parameter->name), parameter->gradient), 1e-4) << parameter->name;
    const auto names = spec::adapter_names(parameter->name);
    if (!names || parameter->name.find("layer_") == std::string::npos) continue;
    const model::Parameter &down = adapted.parameter(names->down), &up = adapted.parameter(names->up);
    for (const spec::AdapterPart& part : spec::adapter_parts(*parameter, down, up)) {
      const at::Tensor of_matrix = parameter->gradient.narrow(0, part.begin, part.rows);
      const at::Tensor a = down.weight.narrow(0, part.down, part.rank), b = up.weight.narrow(0, part.up, part.rows);
      EXPECT_LT(relative_error(down.gradient.narrow(0, part.down, part.rank), at::matmul(b.t(), of_matrix) * up.scale),
                1e-4)
          << down.name;
      EXPECT_LT(relative_error(up.gradient.narrow(0, part.up, part.rows), at::matmul(of_matrix, a.t()) * up.scale),
                1e-4)
          << up.name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 2 * 5);
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterModels, testing::Values(&tiny_translation, &tiny_language_model, &tiny_t5));

TEST(Adapters, OfSomePartsLeaveTheOthersAsTheyAre) {
  BoundModel adapted(with_adapters(tiny_language_model(), {.rank = 2, .targets = "value"})),
      merged(tiny_language_model());
  merge(adapted, merged);
  const model::Inputs inputs = ragged_inputs(merged.model->architecture());
  EXPECT_NEAR(train_micro_batch(adapted, inputs), train_micro_batch(merged, inputs), 1e-5);
  const model::Parameter& up = adapted.parameter("decoder/layer_0/self_attention/linear_0/lora_B");
  EXPECT_EQ(up.shape.front(), adapted.model->architecture().kv_heads * adapted.model->architecture().head_size);
}

TEST(Adapters, DropPartsOfTheirInputInTrainingAlone) {
  for (const spec::Architecture& shape : {tiny_translation(), tiny_language_model()}) {
    BoundModel dropping(with_adapters(shape, {.rank = 3, .dropout = 0.4})), plain(with_adapters(shape));
    const model::Inputs inputs = ragged_inputs(shape);
    const auto loss = [&](BoundModel& bound, std::int64_t micro_batch, bool training, spec::Recompute recompute) {
      model::Pass pass = training_pass(recompute);
      pass.training = training;
      pass.micro_batch = micro_batch;
      bound.expect_fresh_gradients();
      return run_micro_batch(*bound.model, inputs, pass);
    };
    const auto none = spec::Recompute::none;
    EXPECT_EQ(loss(dropping, 0, false, none), loss(plain, 0, false, none));
    const double first = loss(dropping, 0, true, none);
    EXPECT_NE(first, loss(plain, 0, true, none));
    EXPECT_NE(first, loss(dropping, 1, true, none));
    EXPECT_EQ(first, loss(dropping, 0, true, none));
    std::map<std::string, at::Tensor> gradients;
    for (const model::Parameter* const each : parameters_of(*dropping.model))
      gradients[each->name] = each->gradient.clone();
    for (const spec::Recompute recompute : {spec::Recompute::activation, spec::Recompute::full}) {
      EXPECT_EQ(first, loss(dropping, 0, true, recompute));
      for (const auto& [name, gradient] : gradients) EXPECT_TRUE(at::equal(dropping.gradient(name), gradient)) << name;
    }
    BoundModel begun(spec::with_adapters(shape, {.rank = 3, .dropout = 0.4})), bare(shape);
    EXPECT_EQ(loss(begun, 0, true, none), loss(bare, 0, true, none)) << "B is 0, and the matrix itself reads all";
  }
}

TEST(Adapters, BeginWithNoEffect) {
  BoundModel adapted(spec::with_adapters(tiny_translation(), {.rank = 4})), plain(tiny_translation());
  const model::Inputs inputs = ragged_inputs(plain.model->architecture());
  EXPECT_EQ(train_micro_batch(adapted, inputs), train_micro_batch(plain, inputs));
  const model::Parameter& down = adapted.parameter("encoder/layer_0/ffn/linear_1/lora_A");
  const double bound = 1 / std::sqrt(static_cast<double>(down.shape.back()));
  EXPECT_LE(down.weight.abs().max().item<double>(), bound);
  EXPECT_NEAR(down.weight.square().mean().item<double>(), bound * bound / 3, 0.2 * bound * bound);
  EXPECT_NEAR(down.weight.mean().item<double>(), 0, 0.2 * bound);
}

}  // namespace
}  // namespace argosy::test
