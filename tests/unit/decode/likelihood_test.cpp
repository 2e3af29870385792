#include "decode/likelihood.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <limits>

#include "support/refusal.hpp"
#include "unit/decode/models.hpp"

namespace argosy::test {
namespace {

using decode::GivenTarget, decode::Likelihood, decode::likelihoods;

/// Step by step, with the cache of the searches.
std::vector<double> stepwise(model::Inference& inference, const GivenTarget& given) {
  const c10::InferenceMode guard;
  const spec::Architecture& shape = inference.architecture();
  std::vector<std::int64_t> read(given.source.begin(), given.source.end()), fed{shape.vocabulary.start};
  if (shape.type == spec::ModelType::decoder) {
    fed = {read.back()};
    if (!shape.prefix_lm) read.pop_back();
  }
  fed.insert(fed.end(), given.target.begin(), given.target.end() - 1);
  model::Cache cache = inference.start();
  inference.add(cache, at::tensor(read, at::kLong).unsqueeze(0), at::tensor({std::ssize(read)}, at::kLong));
  std::vector<double> log_p;
  for (std::size_t i = 0; i < fed.size(); ++i) {
    const at::Tensor logits =
        inference.step(cache, at::tensor({fed[i]}, at::kLong)).narrow(1, 0, shape.vocabulary.pieces);
    log_p.push_back(at::log_softmax(logits.to(at::kDouble), 1)[0][given.target[i]].item<double>());
  }
  return log_p;
}

class Likelihoods : public testing::TestWithParam<spec::Architecture> {};

TEST_P(Likelihoods, AreThoseOfTheStepsHoweverTargetsAreBatched) {
  BoundModel bound(GetParam(), at::kFloat, 5);
  model::Inference inference(*bound.model);
  std::vector<GivenTarget> targets;
  for (std::int32_t i = 0; i < 7; ++i) {
    GivenTarget given;
    for (std::int32_t k = 0; k < 1 + (i * 5) % 7; ++k) given.source.push_back(1 + (i * 3 + k * 7) % 20);
    for (std::int32_t k = 0; k < 1 + (i * 3) % 5; ++k) given.target.push_back((i + k * 11) % 21);
    targets.push_back(given);
  }
  for (const std::int64_t elements : {1, 20, 4096}) {
    const std::vector<Likelihood> found = likelihoods(inference, targets, elements);
    ASSERT_EQ(found.size(), targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::vector<double> expected = stepwise(inference, targets[i]);
      ASSERT_EQ(found[i].log_p.size(), expected.size()) << i;
      for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_NEAR(found[i].log_p[k], expected[k], 1e-5) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Likelihoods,
                         testing::Values(shape_of(spec::ModelType::encoder_decoder, 21),
                                         shape_of(spec::ModelType::decoder, 21), prefix_lm(21)),
                         [](const auto& test) {
                           return std::string(test.param.prefix_lm                          ? "prefix_lm"
                                              : test.param.type == spec::ModelType::decoder ? "decoder"
                                                                                            : "translation");
                         });

TEST(Likelihood, OfWhatASearchHasFoundIsItsOwn) {
  BoundModel bound(shape_of(spec::ModelType::encoder_decoder, 21), at::kFloat, 5);
  for (const at::Tensor& flat : bound.weights) flat.mul_(1.5);
  model::Inference inference(*bound.model);
  for (const std::int64_t beam : {1, 4}) {
    for (const std::vector<std::int32_t>& source : {std::vector<std::int32_t>{1, 7, 0}, {4, 9, 12, 3, 0}}) {
      const auto found = decode::search(inference, {{source}}, {.beam = beam, .nbest = beam, .max_length = 6}).front();
      for (const decode::Hypothesis& hypothesis : found) {
        GivenTarget given{source, hypothesis.ids};
        if (hypothesis.ids.size() < 6) given.target.push_back(0);
        const Likelihood own = likelihoods(inference, {given}).front();
        double sum = 0;
        for (const float one : own.log_p) sum += one;
        EXPECT_NEAR(sum, hypothesis.log_probability, 1e-5);
        if (beam == 1) {
          EXPECT_TRUE(own.is_greedy);
        }
      }
    }
  }
}

TEST(Likelihood, TellsWhetherEachIdIsTheMostProbable) {
  BoundModel bound = constant({0.4, 0.2, 0.4});
  model::Inference inference(*bound.model);
  const auto found =
      likelihoods(inference, {{{1, 0}, {0}}, {{1, 0}, {0, 1}}, {{1, 0}, {2}}, {{1, 0}, {}}, {{1, 0}, {1, 0}}});
  EXPECT_TRUE(found[0].is_greedy);
  EXPECT_FALSE(found[1].is_greedy);
  EXPECT_NEAR(found[1].log_p[1], std::log(0.2), 1e-6);
  EXPECT_FALSE(found[2].is_greedy);  // of equal ones, the lower id is
  EXPECT_TRUE(found[3].log_p.empty());
  EXPECT_FALSE(found[4].is_greedy);
}

TEST(Alignment, IsWhereTheAttentionIsHighest) {
  BoundModel bound(shape_of(spec::ModelType::encoder_decoder, 21), at::kFloat, 5);
  model::Inference inference(*bound.model);
  std::vector<GivenTarget> targets;
  for (std::int32_t i = 0; i < 5; ++i) {
    GivenTarget given{{}, {i, 3, 8}};
    for (std::int32_t k = 0; k < 2 + i; ++k) given.source.push_back(1 + (i * 3 + k * 7) % 20);
    given.source.push_back(0);
    given.target.resize(static_cast<std::size_t>(1 + i % 3));
    targets.push_back(given);
  }
  targets.push_back({{0}, {4, 5}});
  const auto weights = [&](const GivenTarget& given, std::int64_t layer) {
    model::Inputs inputs;
    std::vector<std::int64_t> source(given.source.begin(), given.source.end()),
        fed{inference.architecture().vocabulary.start};
    fed.insert(fed.end(), given.target.begin(), given.target.end() - 1);
    inputs.source = at::tensor(source, at::kLong).unsqueeze(0);
    inputs.source_lengths = at::tensor({std::ssize(source)}, at::kLong);
    inputs.target_in = at::tensor(fed, at::kLong).unsqueeze(0);
    return inference.cross_attention(inputs, layer)[0];
  };
  std::size_t differing = 0;
  for (const std::int64_t layer : {0, 1}) {
    for (const std::int64_t elements : {1, 20, 4096}) {
      const auto found = decode::alignments(inference, targets, layer, elements);
      for (std::size_t i = 0; i < 5; ++i) {
        const at::Tensor row = weights(targets[i], layer);
        EXPECT_LT((row.sum(1) - 1).abs().max().item<double>(), 1e-5);
        ASSERT_EQ(found[i].size(), targets[i].target.size());
        for (std::size_t t = 0; t < found[i].size(); ++t) {
          const at::Tensor pieces = row[static_cast<std::int64_t>(t)].narrow(0, 0, std::ssize(targets[i].source) - 1);
          EXPECT_EQ(found[i][t], pieces.argmax(0).item<std::int64_t>()) << i << " " << t;
        }
      }
      EXPECT_TRUE(found[5].empty());
    }
    differing += decode::alignments(inference, targets, layer) != decode::alignments(inference, targets, 1 - layer);
  }
  EXPECT_EQ(differing, 2U);
}

TEST(Likelihood, RefusesWhatTheModelCannotRead) {
  BoundModel bound = constant({0.3, 0.1, 0.6}, 8);
  model::Inference inference(*bound.model);
  const auto refuse = [&](Fault fault, const GivenTarget& given, const char* words) {
    EXPECT_TRUE(says(refusal(fault, [&] { (void)likelihoods(inference, {given}); }), words));
  };
  refuse(Fault::data, {{1, 0}, std::vector<std::int32_t>(9, 1)}, "at most 8 positions");
  bound.parameter("decoder/projection/bias").weight[1].fill_(std::numeric_limits<float>::quiet_NaN());
  refuse(Fault::numeric, {{1, 0}, {0}}, "NaN");
}

}  // namespace
}  // namespace argosy::test
