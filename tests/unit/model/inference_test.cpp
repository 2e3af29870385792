#include "model/inference.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "support/refusal.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

class CachedInference : public testing::TestWithParam<spec::Architecture> {
 protected:
  model::Cache start(std::int64_t copies = 1) {
    return inputs.source.defined() ? inference.start(inputs.source, inputs.source_lengths, copies)
                                   : inference.start(inputs.target_in.size(0) * copies);
  }

  BoundModel bound{GetParam()};
  model::Inference inference{*bound.model};
  const model::Inputs inputs = ragged_inputs(GetParam());
};

TEST_P(CachedInference, EqualsOnePassOverTheWholeTarget) {
  model::Cache whole = start(), stepped = start();
  const at::Tensor expected = inference.extend(whole, inputs.target_in);
  for (std::int64_t t = 0; t < inputs.target_in.size(1); ++t) {
    const at::Tensor logits = inference.step(stepped, inputs.target_in.select(1, t));
    EXPECT_LT((logits - expected.select(1, t)).abs().max().item<double>(), 1e-5) << t;
  }
  EXPECT_EQ(stepped.length(), inputs.target_in.size(1));
  EXPECT_EQ(expected.narrow(2, GetParam().vocabulary.pieces, 1).max().item<double>(), -1e4);

  // and the logits are those that training sees
  model::Pass pass;
  const at::NoGradGuard no_grad;
  model::State state;
  for (const model::Visit& visit : bound.model->visits()) state = visit.forward(state, inputs, pass);
  const at::Tensor nll =
      -at::log_softmax(expected, -1).gather(2, inputs.target_labels.clamp_min(0).unsqueeze(2)).squeeze(2);
  EXPECT_NEAR((nll * inputs.target_labels.ge(0)).sum().item<double>(), pass.nll_sum.item<double>(), 1e-4);
}

TEST_P(CachedInference, RowsMayBeReorderedAndDropped) {
  const auto ids = [&](std::int64_t t, const at::Tensor& rows) {
    return inputs.target_in.select(1, t).index_select(0, rows);
  };
  model::Cache plain = start(1), beams = start(2);
  const at::Tensor all = at::tensor({0, 1, 2}, at::kLong);
  (void)inference.step(plain, ids(0, all));
  const at::Tensor first = inference.step(plain, ids(1, all));
  const at::Tensor second = inference.step(plain, ids(2, all));

  (void)inference.step(beams, ids(0, at::tensor({0, 0, 1, 1, 2, 2}, at::kLong)));
  beams.select(at::tensor({1, 0, 3, 3, 5, 4}, at::kLong));  // within each source
  at::Tensor rows = at::tensor({0, 0, 1, 1, 2, 2}, at::kLong);
  EXPECT_LT((inference.step(beams, ids(1, rows)) - first.index_select(0, rows)).abs().max().item<double>(), 1e-5);
  beams.select(at::tensor({4, 5, 1}, at::kLong));  // sources dropped, reordered, served unequally
  rows = at::tensor({2, 2, 0}, at::kLong);
  EXPECT_LT((inference.step(beams, ids(2, rows)) - second.index_select(0, rows)).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(beams.rows(), 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CachedInference,
                         testing::Values(tiny_translation(), tiny_language_model(),
                                         with(tiny_translation(),
                                              [](auto& s) { s.norm_position = spec::NormPosition::pre; }),
                                         with(tiny_language_model(), [](auto& s) { s.window = 3; })));

TEST(Inference, StepsThroughAllPositionsAndNoFurther) {
  BoundModel bound(tiny_language_model());  // 32 positions: the cache grows on the way
  model::Inference inference(*bound.model);
  model::Cache whole = inference.start(1), cache = inference.start(1);
  const at::Tensor ids = ((at::arange(32) * 5).remainder(20) + 1).unsqueeze(0), expected = inference.extend(whole, ids);
  for (std::int64_t t = 0; t < 32; ++t) {
    const at::Tensor logits = inference.step(cache, ids.select(1, t));
    EXPECT_LT((logits - expected.select(1, t)).abs().max().item<double>(), 1e-5) << t;
  }
  EXPECT_THAT(refusal(Fault::data, [&] { (void)inference.step(cache, ids.select(1, 0)); }),
              testing::HasSubstr("at most 32 positions"));
}

}  // namespace
}  // namespace argosy::test
