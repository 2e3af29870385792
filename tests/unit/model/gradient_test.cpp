#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "unit/model/reference.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

using model::Pass;
using spec::Activation, spec::Norm, spec::NormPosition, spec::Position;

struct Case {
  const char* name;
  spec::Architecture shape;
  double label_smoothing = 0.1, z = 0;
};

const Case gradient_cases[] = {
    {"MarianPostNorm", with(tiny_translation(), [](auto&) {})},
    {"PegasusPreNormSwish",
     with(tiny_translation(),
          [](auto& s) {
            s.norm_position = NormPosition::pre;
            s.norm_epsilon = 0.05;
            s.activation = Activation::swish;
          }),
     0.1, 1e-3},
    {"UntiedGelu",
     with(tiny_translation(),
          [](auto& s) {
            s.tie_embeddings = s.tie_inputs = false;
            s.activation = Activation::gelu;
          }),
     0},
    {"RotaryEncoderGroupedRmsNorm", with(tiny_translation(),
                                         [](auto& s) {
                                           s.norm = Norm::rms_norm;
                                           s.norm_position = NormPosition::pre;
                                           s.bias = false;
                                           s.activation = Activation::swiglu;
                                           s.kv_heads = 2;
                                           s.encoder_position = s.decoder_position = Position::rope;
                                         })},
    {"Llama", with(tiny_language_model(), [](auto& s) { s.norm_epsilon = 0.05; }), 0},
    {"MistralTiedWindow",
     with(tiny_language_model(),
          [](auto& s) {
            s.tie_embeddings = true;
            s.window = 3;
          }),
     0.1},
    {"PrefixLm", with(tiny_language_model(), [](auto& s) { s.prefix_lm = true; })},
    {"PrefixLmT5Window", with(tiny_language_model(),
                              [](auto& s) {
                                s.prefix_lm = true;
                                s.decoder_position = Position::t5;
                                s.window = 3;
                              })},
    {"Llama3QwenBiases", with(tiny_language_model(),
                              [](auto& s) {
                                s.qkv_bias = true;
                                s.rope_theta = 50;
                                s.rope_scaling = {.factor = 4, .original_max_positions = 20};
                              })},
    {"QueryBiasesOfTranslation", with(tiny_translation(),
                                      [](auto& s) {
                                        s.bias = false;
                                        s.qkv_bias = true;
                                        s.scales_embeddings = false;
                                      })},
    {"T5Tied", with(tiny_t5(), [](auto&) {})},
    {"TiedInputsWithoutOutputBias", with(tiny_translation(),
                                         [](auto& s) {
                                           s.norm_position = NormPosition::pre;
                                           s.tie_embeddings = s.output_bias = false;
                                         })},
    {"T5TiedInputsGrouped", with(tiny_t5(),
                                 [](auto& s) {
                                   s.tie_embeddings = false;
                                   s.kv_heads = 2;
                                 })},
    {"Alibi", tiny_with(Position::alibi, Position::alibi)},
    {"AlibiWindow", with(tiny_language_model(),
                         [](auto& s) {
                           s.decoder_position = Position::alibi;
                           s.window = 3;
                         })},
    {"LearnedTied", tiny_with(Position::learned, Position::learned)},
    {"LearnedUntied",
     with(tiny_with(Position::learned, Position::learned), [](auto& s) { s.tie_embeddings = s.tie_inputs = false; })},
    {"SourceUntied", with(tiny_translation(), [](auto& s) { s.tie_inputs = false; })},
    {"FairseqThenNone", tiny_with(Position::sinusoidal_fairseq, Position::none)},
    {"RopeThenT5", tiny_with(Position::rope, Position::t5)},
    {"T5ThenRope", tiny_with(Position::t5, Position::rope)},
    {"NoneThenFairseq", tiny_with(Position::none, Position::sinusoidal_fairseq)},
};

class Gradient : public testing::TestWithParam<Case> {};

void expect_reference(const Case& of, const model::Inputs& inputs) {
  const spec::Architecture& shape = of.shape;
  BoundModel bound(shape);
  Pass pass = training_pass();
  pass.loss.label_smoothing = of.label_smoothing;
  pass.loss.z = of.z;
  const double loss = run_micro_batch(*bound.model, inputs, pass);

  const Weights leaves = leaves_of(*bound.model);
  const at::Tensor expected = reference_loss(shape, leaves, inputs, pass);
  expected.backward();
  EXPECT_NEAR(loss, expected.item<double>(), 2e-6 * std::abs(loss));
  EXPECT_EQ(pass.token_count.item<double>(), 11);
  for (const auto& [name, leaf] : leaves) {
    ASSERT_TRUE(leaf.grad().defined()) << name;
    at::Tensor reference = leaf.grad().clone();
    if (shape.vocabulary.layout == spec::TokenLayout::marian && name.ends_with("embeddings/weight")) {
      reference.select(0, shape.vocabulary.start).zero_();  // the row of Marian's <pad> is not trained
    }
    EXPECT_LT(relative_error(bound.gradient(name), reference), 2e-5) << name;
  }
}

TEST_P(Gradient, EqualsTheReferenceInDoublePrecision) { expect_reference(GetParam(), ragged_inputs(GetParam().shape)); }

TEST(ShiftedPositions, GradientEqualsTheReference) {
  for (const Position position : {Position::sinusoidal, Position::sinusoidal_fairseq, Position::learned}) {
    SCOPED_TRACE(boost::describe::enum_to_string(position, ""));
    const spec::Architecture shape =
        with(tiny_with(position, position), [](auto& changed) { changed.position_shift_max = 8; });
    model::Inputs inputs = ragged_inputs(shape);
    const auto shifted = [](const at::Tensor& ids, const at::Tensor& shifts) {
      return at::arange(ids.size(1)) + shifts.unsqueeze(1);
    };
    inputs.source_positions = shifted(inputs.source, at::tensor({3, 0, 8}, at::kLong));
    inputs.positions = shifted(inputs.target_in, at::tensor({1, 8, 0}, at::kLong));
    expect_reference({"", shape}, inputs);
  }
}

TEST_P(Gradient, SecondMicroBatchAddsUp) {
  const spec::Architecture& shape = GetParam().shape;
  BoundModel once(shape), twice(shape);
  const model::Inputs inputs = ragged_inputs(shape);
  for (BoundModel* bound : {&once, &twice, &twice}) train_micro_batch(*bound, inputs);
  for (const model::Parameter* parameter : parameters_of(*once.model))
    EXPECT_LT(relative_error(twice.gradient(parameter->name), parameter->gradient * 2), 1e-6) << parameter->name;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gradient, testing::ValuesIn(gradient_cases),
                         [](const auto& test) { return test.param.name; });

/// Beyond 8 positions, encoders and decoders have other buckets.
TEST(GradientOfT5, EqualsTheReferenceAtLongDistances) {
  const spec::Architecture shape = with(tiny_t5(), [](auto&) {});
  BoundModel bound(shape);
  model::Inputs inputs = ragged_inputs(shape);
  inputs.source = inputs.source.repeat({1, 6});
  inputs.source_lengths = inputs.source_lengths + 25;
  inputs.target_in = inputs.target_in.repeat({1, 5});
  inputs.target_labels = inputs.target_labels.repeat({1, 5});
  Pass pass = training_pass();
  const double loss = run_micro_batch(*bound.model, inputs, pass);
  const Weights leaves = leaves_of(*bound.model);
  const at::Tensor expected = reference_loss(shape, leaves, inputs, pass);
  expected.backward();
  EXPECT_NEAR(loss, expected.item<double>(), 2e-6 * std::abs(loss));
  for (const auto& [name, leaf] : leaves) EXPECT_LT(relative_error(bound.gradient(name), leaf.grad()), 2e-5) << name;
}

TEST(Model, GradientOfATokenDoesNotDependOnItsBatch) {
  const spec::Architecture shape = with(tiny_translation(), [](spec::Architecture&) {});
  BoundModel together(shape), apart(shape);
  const model::Inputs inputs = ragged_inputs(shape);
  const double loss = train_micro_batch(together, inputs);
  double sum = 0;
  for (std::int64_t row = 0; row < 3; ++row) sum += train_micro_batch(apart, single_row(inputs, row));
  EXPECT_NEAR(sum, loss, 1e-6 * loss);
  expect_gradients_near(apart, together, 3e-6);
}

TEST(Model, DropoutDrawsTheSameMasksAgainAndOthersForAnotherMicroBatch) {
  spec::Architecture shape = tiny_translation();
  shape.dropout = 0.3;
  BoundModel bound(shape);
  const model::Inputs inputs = ragged_inputs(shape);
  Pass pass = training_pass();
  const double first = run_micro_batch(*bound.model, inputs, pass);
  const at::Tensor gradient = bound.gradients.front().clone();
  bound.expect_fresh_gradients();
  EXPECT_EQ(run_micro_batch(*bound.model, inputs, pass), first);
  EXPECT_TRUE(at::equal(bound.gradients.front().nan_to_num(), gradient.nan_to_num()));
  pass.micro_batch = 1;
  EXPECT_NE(run_micro_batch(*bound.model, inputs, pass), first);
  pass.training = false;
  shape.dropout = 0;
  BoundModel without(shape);
  const double plain = run_micro_batch(*bound.model, inputs, pass);
  EXPECT_EQ(run_micro_batch(*without.model, inputs, pass), plain);
}

TEST(Model, EachBranchOfEachBlockDrawsItsOwnMask) {
  // All branches give ones, so that an element of the encoder's output counts the masks that keep it: binomial where
  // masks are independent. Two of the four alike: twice the variance.
  spec::Architecture shape = tiny_translation();
  shape.dropout = 0.5;
  shape.norm_position = NormPosition::pre;
  shape.encoder_position = Position::rope;
  BoundModel bound(shape);
  for (const at::Tensor& flat : bound.weights) flat.zero_();
  for (const std::string branch : {"layer_0/self_attention", "layer_0/ffn", "layer_1/self_attention", "layer_1/ffn"})
    bound.parameter("encoder/" + branch + "/linear_1/bias").weight.fill_(1);
  const at::NoGradGuard no_grad;
  const model::Inputs inputs = ragged_inputs(shape);
  const auto kept = [&](std::uint64_t seed, std::int64_t step, std::int64_t micro_batch) {
    Pass pass = training_pass();
    pass.seed = seed;
    pass.step = step;
    pass.micro_batch = micro_batch;
    model::State state;
    for (const model::Visit& visit : bound.model->visits()) {
      if (visit.name == "target") break;
      state = visit.forward(state, inputs, pass);
    }
    return state.x.to(at::kDouble) / 2;
  };
  const at::Tensor first = kept(5, 3, 0);
  EXPECT_EQ(first.numel(), 240);
  EXPECT_NEAR(first.mean().item<double>(), 2, 4 / std::sqrt(240));
  EXPECT_NEAR(first.var().item<double>(), 1, 4 * std::sqrt(2.0 / 240));
  EXPECT_TRUE(at::equal(first, kept(5, 3, 0)));
  for (const at::Tensor& other : {kept(6, 3, 0), kept(5, 4, 0), kept(5, 3, 1)}) {
    // Two independent binomials agree in 70 of 256 cases.
    EXPECT_NEAR(first.eq(other).to(at::kDouble).mean().item<double>(), 70.0 / 256, 0.15);
  }
}

TEST(Model, GradientUnderDropoutAndNoiseIsTheSlopeOfTheLoss) {
  for (const NormPosition position : {NormPosition::pre, NormPosition::post}) {
    spec::Architecture shape = tiny_translation();
    shape.dropout = 0.3;
    shape.neftune_alpha = 5;
    shape.norm_position = position;
    shape.activation = Activation::swish;  // no kinks
    BoundModel bound(shape);
    const model::Inputs inputs = ragged_inputs(shape);
    train_micro_batch(bound, inputs);
    for (const char* name : {"decoder/embeddings/weight", "encoder/layer_0/self_attention/linear_0/weight",
                             "decoder/layer_1/attention/linear_1/weight", "decoder/layer_0/ffn/linear_0/weight"}) {
      model::Parameter& parameter = bound.parameter(name);
      const at::Tensor gradient = parameter.gradient.clone(), weight = parameter.weight.clone();
      const double slope = gradient.square().sum().item<double>(), step = 5e-3 / std::sqrt(slope);
      const auto loss_at = [&](double distance) {
        parameter.weight.copy_(weight + gradient * (distance * step));
        bound.expect_fresh_gradients();
        return train_micro_batch(bound, inputs);
      };
      const double measured = (8 * (loss_at(0.5) - loss_at(-0.5)) - (loss_at(1) - loss_at(-1))) / (6 * step);
      parameter.weight.copy_(weight);
      EXPECT_NEAR(measured, slope, 2e-2 * slope) << name;
    }
  }
}

class Packed : public testing::TestWithParam<std::tuple<Position, bool>> {};

TEST_P(Packed, ARowOfDocumentsEqualsTheDocumentsApart) {
  const spec::Architecture shape = with(
      tiny_language_model(), [](spec::Architecture& s) { std::tie(s.decoder_position, s.prefix_lm) = GetParam(); });
  BoundModel packed(shape), apart(shape);
  model::Inputs row;
  row.target_in = at::tensor({1, 4, 7, 1, 9, 12, 3}, at::kLong).view({1, 7});
  row.target_labels = at::tensor({4, 7, -1, 9, 12, 3, 2}, at::kLong).view({1, 7});
  row.target_lengths = at::tensor({7}, at::kLong);
  row.positions = at::tensor({0, 1, 2, 0, 1, 2, 3}, at::kLong).view({1, 7});
  row.segments = at::tensor({0, 0, 0, 1, 1, 1, 1}, at::kLong).view({1, 7});
  row.prompts = at::tensor({2, 2, 0, 6, 6, 6, 0}, at::kLong).view({1, 7});
  const double together = train_micro_batch(packed, row);
  double sum = 0;
  for (const auto& [begin, count] : {std::pair{0, 3}, std::pair{3, 4}}) {
    model::Inputs one;
    one.target_in = row.target_in.narrow(1, begin, count).contiguous();
    one.target_labels = row.target_labels.narrow(1, begin, count).contiguous();
    one.target_lengths = at::tensor({count}, at::kLong);
    one.prompts = (row.prompts.narrow(1, begin, count) - begin).clamp_min(0);
    sum += train_micro_batch(apart, one);
  }
  EXPECT_NEAR(together, sum, 1e-6 * sum);
  expect_gradients_near(packed, apart, 3e-6);
}

INSTANTIATE_TEST_SUITE_P(Positions, Packed,
                         testing::Combine(testing::Values(Position::rope, Position::sinusoidal,
                                                          Position::sinusoidal_fairseq, Position::learned,
                                                          Position::alibi, Position::t5, Position::none),
                                          testing::Bool()));

TEST(PrefixLm, APromptReadsItsLaterIdsAndNothingReadsALaterAnswer) {
  for (const bool prefix_lm : {false, true}) {
    BoundModel bound(with(tiny_language_model(), [=](auto& s) { s.prefix_lm = prefix_lm; }));
    const auto outputs = [&](std::int64_t place, std::int64_t id) {  // after the blocks, of each position
      model::Inputs inputs;
      inputs.target_in = at::tensor({1, 4, 7, 9, 12, 3}, at::kLong).view({1, 6});
      inputs.target_in[0][place] = id;
      inputs.prompts = at::tensor({4, 4, 4, 4, 0, 0}, at::kLong).view({1, 6});
      const at::NoGradGuard no_grad;
      model::State state;
      Pass pass;
      for (const model::Visit& visit : bound.model->visits())
        if (visit.kind != spec::VisitKind::head) state = visit.forward(state, inputs, pass);
      return state.x[0];
    };
    const auto changed = [&](std::int64_t place) {
      std::string text;
      const at::Tensor change = (outputs(place, 5) - outputs(place, 6)).abs().amax(1);
      for (std::int64_t i = 0; i < 6; ++i) text += change[i].item<float>() > 0 ? '1' : '.';
      return text;
    };
    EXPECT_EQ(changed(3), prefix_lm ? "111111" : "...111");
    EXPECT_EQ(changed(4), "....11");
  }
}

TEST(Model, AnEmptyMicroBatchLeavesZeroGradients) {
  for (const spec::Architecture& shape :
       {tiny_translation(), tiny_language_model(), tiny_t5(), tiny_with(Position::learned, Position::alibi)}) {
    BoundModel bound(shape);
    model::Inputs inputs = ragged_inputs(shape);
    for (at::Tensor* part :
         {&inputs.source, &inputs.source_lengths, &inputs.target_in, &inputs.target_labels, &inputs.target_lengths}) {
      if (part->defined()) *part = part->narrow(0, 0, 0);
    }
    EXPECT_EQ(train_micro_batch(bound, inputs), 0);
    for (const model::Parameter* parameter : parameters_of(*bound.model))
      EXPECT_EQ(parameter->gradient.abs().sum().item<double>(), 0) << parameter->name;
  }
}

}  // namespace
}  // namespace argosy::test
