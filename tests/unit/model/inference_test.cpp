#include "model/inference.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include "support/refusal.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

using spec::Position;

class CachedInference : public testing::TestWithParam<spec::Architecture> {
 protected:
  /// A row for each of the inputs that are named; a decoder-only model has read none of it.
  void add(model::Cache& cache, std::vector<std::int64_t> rows = {0, 1, 2}) {
    const at::Tensor index = at::tensor(rows, at::kLong);
    if (inputs.source.defined()) {
      inference.add(cache, inputs.source.index_select(0, index), inputs.source_lengths.index_select(0, index));
    } else {
      inference.add(cache, inputs.target_in.index_select(0, index).narrow(1, 0, 0), at::zeros_like(index));
    }
  }
  /// Feeds id `times[i]` of input `rows[i]`.
  at::Tensor step(model::Cache& cache, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& times) {
    at::Tensor ids = at::empty({std::ssize(rows)}, at::kLong);
    for (std::size_t i = 0; i < rows.size(); ++i)
      ids[static_cast<std::int64_t>(i)] = inputs.target_in[rows[i]][times[i]];
    return inference.step(cache, ids);
  }

  BoundModel bound{GetParam()};
  model::Inference inference{*bound.model};
  const model::Inputs inputs = ragged_inputs(GetParam());
};

TEST_P(CachedInference, EqualsAPassOfTrainingOverTheWholeTarget) {
  model::Cache cache = inference.start();
  add(cache);
  for (std::int64_t t = 0; t < inputs.target_in.size(1); ++t) {
    const at::Tensor logits = inference.step(cache, inputs.target_in.select(1, t));
    EXPECT_EQ(logits.narrow(1, GetParam().vocabulary.pieces, 1).max().item<double>(), -1e4);
    // the loss of this position alone
    const at::Tensor labels = inputs.target_labels.select(1, t), bearing = labels.ge(0);
    model::Inputs only = inputs;
    only.target_labels = at::full_like(inputs.target_labels, -1);
    only.target_labels.select(1, t).copy_(labels);
    model::Pass pass;
    const at::NoGradGuard no_grad;
    model::State state;
    for (const model::Visit& visit : bound.model->visits()) state = visit.forward(state, only, pass);
    const at::Tensor nll = -at::log_softmax(logits, -1).gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
    EXPECT_NEAR((nll * bearing).sum().item<double>(), pass.nll_sum.item<double>(), 1e-5) << t;
  }
}

TEST_P(CachedInference, RowsMayBeReorderedRepeatedAndDropped) {
  model::Cache plain = inference.start(), beams = inference.start();
  add(plain);
  add(beams);
  (void)step(plain, {0, 1, 2}, {0, 0, 0});
  const at::Tensor first = step(plain, {0, 1, 2}, {1, 1, 1}), second = step(plain, {0, 1, 2}, {2, 2, 2});

  (void)step(beams, {0, 1, 2}, {0, 0, 0});
  beams.select(std::vector<std::int64_t>{2, 0, 0, 1});
  at::Tensor rows = at::tensor({2, 0, 0, 1}, at::kLong);
  EXPECT_LT((step(beams, {2, 0, 0, 1}, {1, 1, 1, 1}) - first.index_select(0, rows)).abs().max().item<double>(), 1e-5);
  beams.select(std::vector<std::int64_t>{3, 0, 2, 1});
  rows = at::tensor({1, 2, 0, 0}, at::kLong);
  EXPECT_LT((step(beams, {1, 2, 0, 0}, {2, 2, 2, 2}) - second.index_select(0, rows)).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(beams.rows(), 4);
}

TEST_P(CachedInference, RowsEnterAtAnyTime) {
  model::Cache alone = inference.start(), mixed = inference.start();
  add(alone, {1});
  const at::Tensor first = step(alone, {1}, {0}), second = step(alone, {1}, {1});
  add(mixed, {0});
  (void)step(mixed, {0}, {0});
  add(mixed, {2, 1});
  EXPECT_LT((step(mixed, {0, 2, 1}, {1, 0, 0})[2] - first[0]).abs().max().item<double>(), 1e-5);
  mixed.select(std::vector<std::int64_t>{2});
  for (int round = 0; round < 400; ++round) {  // places of rows that have left are used again
    add(mixed, {0, 2});
    mixed.select(std::vector<std::int64_t>{0});
  }
  EXPECT_LT((step(mixed, {1}, {1}) - second).abs().max().item<double>(), 1e-5);
}

/// Reads the prompts at once, and feeds their last ids again.
TEST(PrefixLmInference, EqualsAPassOfTrainingOverTheWholeTarget) {
  for (const Position position : {Position::rope, Position::t5}) {
    for (const std::optional<std::int64_t> window : {std::optional<std::int64_t>(), std::optional<std::int64_t>(3)}) {
      const spec::Architecture shape = with(tiny_language_model(), [&](auto& s) {
        s.prefix_lm = true;
        s.decoder_position = position;
        s.window = window;
      });
      BoundModel bound(shape);
      model::Inference inference(*bound.model);
      const at::Tensor ids = at::tensor({1, 4, 7, 9, 12, 3, 1, 5, 6, 2, 8, 11}, at::kLong).view({2, 6}),
                       lengths = at::tensor({4, 2}, at::kLong);
      model::Inputs inputs;
      inputs.target_in = ids;
      inputs.prompts = at::tensor({4, 4, 4, 4, 0, 0, 2, 2, 0, 0, 0, 0}, at::kLong).view({2, 6});
      const at::Tensor outputs = inference.read_targets(inputs);
      model::Cache cache = inference.start();
      inference.add(cache, ids.narrow(1, 0, 4), lengths);
      for (std::int64_t t = 0; t < 3; ++t) {  // from the last position of each prompt on
        const at::Tensor places = at::tensor({3 + t, 6 + 1 + t}, at::kLong);
        const at::Tensor logits = inference.step(cache, ids.flatten().index_select(0, places));
        const at::Tensor expected = inference.logits(outputs.flatten(0, 1).index_select(0, places));
        EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-5) << t;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CachedInference,
    testing::Values(tiny_translation(), tiny_language_model(),
                    with(tiny_translation(), [](auto& s) { s.norm_position = spec::NormPosition::pre; }),
                    with(tiny_language_model(), [](auto& s) { s.window = 3; }), tiny_t5(),
                    with(tiny_language_model(),
                         [](auto& s) {
                           s.decoder_position = Position::alibi;
                           s.window = 3;
                         }),
                    tiny_with(Position::alibi, Position::learned), tiny_with(Position::learned, Position::alibi),
                    tiny_with(Position::rope, Position::none), tiny_with(Position::sinusoidal_fairseq, Position::rope),
                    tiny_with(Position::rope, Position::sinusoidal_fairseq)));

/// Positions that the model of 32 tells apart.
class EachPosition : public testing::TestWithParam<Position> {};

TEST_P(EachPosition, StepsThroughAllPositionsAndNoFurther) {
  BoundModel bound(with(tiny_language_model(), [](auto& s) { s.decoder_position = GetParam(); }));
  model::Inference inference(*bound.model);
  const at::Tensor ids = ((at::arange(32) * 5).remainder(20) + 1).unsqueeze(0);
  model::Cache cache = inference.start(), prompted = inference.start();
  inference.add(cache, ids.narrow(1, 0, 0), at::tensor({0}, at::kLong));
  // prompts of different lengths, padded
  inference.add(prompted, at::cat({ids, ids.flip(1)}), at::tensor({11, 20}, at::kLong));
  for (std::int64_t t = 0; t < 32; ++t) {
    const at::Tensor logits = inference.step(cache, ids.select(1, t));
    if (t < 11 || t >= 23) continue;
    const at::Tensor next = at::stack({ids[0][t], ids[0][11 - (t - 11)]});
    EXPECT_LT((inference.step(prompted, next)[0] - logits[0]).abs().max().item<double>(), 1e-5) << t;
  }
  EXPECT_THAT(refusal(Fault::data, [&] { (void)inference.step(cache, ids.select(1, 0)); }),
              testing::HasSubstr("at most 32 positions"));
}

INSTANTIATE_TEST_SUITE_P(Positions, EachPosition,
                         testing::Values(Position::rope, Position::sinusoidal, Position::sinusoidal_fairseq,
                                         Position::learned, Position::alibi, Position::t5, Position::none));

TEST(Inference, CrossAttentionIsTheOneOfItsLayer) {
  const auto shape = with(tiny_translation(), [](auto& s) { s.norm_position = spec::NormPosition::pre; });
  BoundModel bound(shape);
  model::Inference inference(*bound.model);
  const model::Inputs inputs = ragged_inputs(shape);
  for (const std::int64_t layer : {0, 1}) {
    const at::Tensor weights = inference.cross_attention(inputs, layer);
    EXPECT_EQ(weights.sizes().vec(), (std::vector<std::int64_t>{3, inputs.target_in.size(1), inputs.source.size(1)}));
    EXPECT_LT((weights.sum(2) - 1).abs().max().item<double>(), 1e-5);
    for (std::int64_t row = 0; row < 3; ++row) {
      const auto seen = inputs.source_lengths[row].item<std::int64_t>();
      EXPECT_EQ(weights[row].narrow(1, seen, inputs.source.size(1) - seen).sum().item<double>(), 0);
      // Alone, the row gives the same.
      const at::Tensor alone = inference.cross_attention(single_row(inputs, row), layer)[0];
      EXPECT_LT((weights[row].narrow(0, 0, alone.size(0)).narrow(1, 0, seen) - alone).abs().max().item<double>(), 1e-5);
    }
  }
}

TEST(Inference, WeightsOf8BitsGiveNearlyTheSame) {
  BoundModel bound(tiny_translation());
  const model::Inputs inputs = ragged_inputs(tiny_translation());
  const auto logits = [&](kernels::PackedType type) {
    model::Inference inference(*bound.model, type);
    model::Cache cache = inference.start();
    inference.add(cache, inputs.source, inputs.source_lengths);
    return inference.step(cache, inputs.target_in.select(1, 0)).narrow(1, 0, tiny_translation().vocabulary.pieces);
  };
  const at::Tensor exact = logits(kernels::PackedType::same), rounded = logits(kernels::PackedType::int8);
  const double difference = ((rounded - exact).norm() / exact.norm()).item<double>();
  EXPECT_LT(difference, 0.05);
  EXPECT_GT(difference, 1e-4);
}

}  // namespace
}  // namespace argosy::test
