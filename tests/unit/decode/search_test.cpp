#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <limits>

#include "decode/decode.hpp"
#include "support/refusal.hpp"
#include "support/small_model.hpp"
#include "unit/model/support.hpp"

// Two kinds of models: such that give every step the same probabilities, whose results are worked out by hand, and
// random ones with a vocabulary so small that all translations can be listed.
namespace argosy::test {
namespace {

using decode::Hypothesis, decode::SearchOptions;
using Ids = std::vector<std::int32_t>;

spec::Architecture shape_of(spec::ModelType type, std::int64_t live, std::int64_t max_positions = 32) {
  const int encoder_layers = type == spec::ModelType::encoder_decoder ? 1 : 0;
  spec::ModelConfig config = model_config(
      {.type = type, .width = 8, .ff = 8, .heads = 2, .encoder_layers = encoder_layers, .decoder_layers = 2});
  config.vocab_multiple = 8;
  config.max_positions = max_positions;
  config.bias = true;
  return resolve(config, live);
}

/// Live ids 0 (EOS of translation models), 1, … come with these probabilities, whatever stands before.
BoundModel constant(const std::vector<double>& probabilities, std::int64_t max_positions = 32,
                    spec::ModelType type = spec::ModelType::encoder_decoder) {
  BoundModel bound(shape_of(type, static_cast<std::int64_t>(probabilities.size()), max_positions));
  for (const at::Tensor& flat : bound.weights) flat.zero_();
  float* bias = bound.parameter("decoder/projection/bias").weight.data_ptr<float>();
  for (const double p : probabilities) *bias++ = static_cast<float>(std::log(p));
  return bound;
}

Hypothesis best(BoundModel& bound, const SearchOptions& options, const Ids& source = {1, 0}) {
  model::Inference inference(*bound.model);
  return decode::search(inference, {source}, options).front();
}

void expect_best(BoundModel& bound, const SearchOptions& options, const Ids& ids, double score) {
  const Hypothesis found = best(bound, options);
  EXPECT_EQ(found.ids, ids);
  EXPECT_NEAR(found.score, score, 1e-5);
}

TEST(Greedy, TakesTheLikeliestIdUntilTheLimit) {
  BoundModel bound = constant({0.2, 0.3, 0.5});
  for (const double alpha : {0.0, 0.5, 1.0})
    expect_best(bound, {.length_penalty = alpha, .max_length = 4}, {2, 2, 2, 2},
                4 * std::log(0.5) / std::pow(4, alpha));
}

TEST(Greedy, EosEndsAndCountsInTheLength) {
  BoundModel bound = constant({0.6, 0.1, 0.3});
  expect_best(bound, {}, {}, std::log(0.6));
  expect_best(bound, {.patience = 4, .max_length = 8}, {}, std::log(0.6));  // patience is for beams
  // Without EOS the others share all of the probability.
  expect_best(bound, {.min_length = 2}, {2, 2}, (2 * std::log(0.75) + std::log(0.6)) / 3);
}

TEST(Search, LengthIsBoundBySourceOptionAndPositions) {
  BoundModel bound = constant({0.1, 0.1, 0.8}, 24);
  const Ids source{1, 1, 0};
  const auto length = [&](const SearchOptions& options) { return best(bound, options, source).ids.size(); };
  EXPECT_EQ(length({.max_length_factor = 2.5}), 17U);  // ⌊7.5⌋ + 10
  EXPECT_EQ(length({.max_length = 5}), 5U);
  EXPECT_EQ(length({.max_length_factor = 0}), 24U);
  EXPECT_EQ(length({.max_length_factor = 1e300}), 24U);
  EXPECT_EQ(length({.beam = 3, .max_length_factor = 0, .min_length = 100}), 24U);

  BoundModel language = constant({0.1, 0.1, 0.1, 0.7}, 24, spec::ModelType::decoder);
  EXPECT_EQ(best(language, {.max_length_factor = 0}, {1, 3, 3, 3, 3}).ids.size(), 20U);  // 5 + 19 fed, 20 come out
  EXPECT_EQ(best(language, {.max_length_factor = 0}, Ids(24, 1)).ids.size(), 1U);
}

TEST(Beam, FinishedOnesMakeRoomUntilThereAreEnough) {
  // After one step: EOS .3 | a .6, unk .1. After two: "a" .18 is the second to finish. Patience 2 waits for two more:
  // "aa" .108, "aaa" .0648. A greedy search never ends.
  BoundModel bound = constant({0.3, 0.1, 0.6});
  expect_best(bound, {.beam = 2}, {2}, std::log(0.18) / 2);
  expect_best(bound, {.beam = 2, .patience = 2}, {2, 2, 2}, std::log(0.0648) / 4);
  expect_best(bound, {.beam = 2, .length_penalty = 0}, {}, std::log(0.3));
}

TEST(Beam, AFinishedOneIsNotContinued) {
  // EOS .5, "a" .2, "aa" .08, "aaa" .032 finish one after the other; the exponent prefers length so much that anything
  // grown from the first would win.
  BoundModel bound = constant({0.5, 0.1, 0.4});
  expect_best(bound, {.beam = 2, .length_penalty = 2, .patience = 2}, {2, 2, 2}, std::log(0.032) / 16);
}

TEST(Beam, WiderThanTheVocabularyFindsTheBest) {
  BoundModel bound = constant({0.3, 0.1, 0.6});
  expect_best(bound, {.beam = 16, .max_length = 3}, {2, 2, 2}, std::log(0.6));
  // Two are enough: one finishes in the first step, two in the second, and nothing impossible counts before.
  EXPECT_EQ(best(bound, {.beam = 16, .patience = 0.125}).ids, Ids{2});
}

TEST(Search, TiesGoToTheLowerId) {
  BoundModel bound = constant(std::vector<double>(50, 0.02));
  for (const std::int64_t beam : {1, 2, 3, 5})
    EXPECT_EQ(best(bound, {.beam = beam, .max_length = 1, .min_length = 1}).ids, Ids{1}) << beam;
}

/// All there is to choose from, by passes over every sequence of `steps` ids.
Hypothesis best_of_all(BoundModel& bound, const Ids& source, std::int64_t steps, double alpha) {
  const c10::InferenceMode guard;
  const spec::Architecture& shape = bound.model->architecture();
  const std::int64_t live = shape.vocabulary.pieces, eos = shape.vocabulary.eos;
  model::Inference inference(*bound.model);
  Hypothesis best{{}, -std::numeric_limits<double>::infinity()};
  std::vector<Ids> prefixes{{}};
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<Ids> next;
    for (const Ids& prefix : prefixes) {
      std::vector<std::int64_t> ids{shape.vocabulary.start}, read(source.begin(), source.end());
      if (shape.type == spec::ModelType::decoder) {
        ids = {read.back()};
        read.pop_back();
      }
      ids.insert(ids.end(), prefix.begin(), prefix.end());
      model::Cache cache = inference.start();
      inference.add(cache, at::tensor(read, at::kLong).unsqueeze(0), at::tensor({std::ssize(read)}, at::kLong));
      std::vector<at::Tensor> steps_logits;
      for (const std::int64_t id : ids) steps_logits.push_back(inference.step(cache, at::tensor({id}, at::kLong)));
      const at::Tensor logits = at::cat(steps_logits).narrow(1, 0, live);
      if (shape.type == spec::ModelType::decoder) logits.select(1, shape.vocabulary.start).fill_(-1e9);
      const at::Tensor log_p = at::log_softmax(logits.to(at::kDouble), 1);
      double sum = 0;
      for (std::size_t i = 0; i < prefix.size(); ++i)
        sum += log_p[static_cast<std::int64_t>(i)][prefix[i]].item<double>();
      for (std::int64_t id = 0; id < live; ++id) {
        if (id == shape.vocabulary.start) continue;
        const double score = (sum + log_p[static_cast<std::int64_t>(prefix.size())][id].item<double>()) /
                             std::pow(static_cast<double>(step + 1), alpha);
        Ids longer = prefix;
        if (id != eos) longer.push_back(static_cast<std::int32_t>(id));
        if ((id == eos || step + 1 == steps) && score > best.score) best = {longer, score};
        if (id != eos) next.push_back(longer);
      }
    }
    prefixes = std::move(next);
  }
  return best;
}

class RandomModel : public testing::TestWithParam<spec::ModelType> {};

TEST_P(RandomModel, ABeamThatHoldsEverythingFindsTheBestOfAll) {
  BoundModel bound(shape_of(GetParam(), 5), at::kFloat, 3);
  for (const at::Tensor& flat : bound.weights) flat.mul_(1.5);  // clear preferences
  std::size_t lengths = 0;
  for (const Ids& source : {Ids{1, 3, 0}, Ids{4, 0}, Ids{1, 3, 4, 3}}) {
    for (const double alpha : {0.0, 0.6, 1.0}) {
      const Hypothesis expected = best_of_all(bound, source, 4, alpha);
      const Hypothesis found =
          best(bound, {.beam = 100, .length_penalty = alpha, .patience = 1000, .max_length = 4, .batch_elements = 1},
               source);
      if (alpha > 0) {
        EXPECT_EQ(found.ids, expected.ids) << alpha;
        EXPECT_NEAR(found.score, expected.score, 1e-4) << alpha;
      }
      lengths |= std::size_t{1} << found.ids.size();
    }
  }
  EXPECT_GT(lengths, 1U);  // not all empty
}

TEST_P(RandomModel, ResultsDoNotDependOnTheBatch) {
  BoundModel bound(shape_of(GetParam(), 21), at::kFloat, 5);
  for (const at::Tensor& flat : bound.weights) flat.mul_(1.5);
  std::vector<Ids> sources;
  for (std::int32_t i = 0; i < 9; ++i) {
    Ids ids;
    for (std::int32_t k = 0; k < 1 + (i * 5) % 7; ++k) ids.push_back(1 + (i * 3 + k * 7) % 20);
    ids.push_back(0);
    sources.push_back(ids);
  }
  for (const auto& [beam, min_length] : {std::pair{1, 0}, {3, 0}, {2, 4}}) {
    const SearchOptions options{.beam = beam, .max_length = 12, .min_length = min_length};
    std::vector<Hypothesis> apart;
    for (const Ids& source : sources) apart.push_back(best(bound, options, source));
    for (const std::int64_t elements : {1, 9, 20, 4096}) {  // 9 and 20: sentences enter while others are at work
      SearchOptions batched = options;
      model::Inference inference(*bound.model);
      batched.batch_elements = elements;
      const std::vector<Hypothesis> together = decode::search(inference, sources, batched);
      ASSERT_EQ(together.size(), sources.size());
      for (std::size_t i = 0; i < sources.size(); ++i) {
        EXPECT_EQ(together[i].ids, apart[i].ids) << i;
        EXPECT_NEAR(together[i].score, apart[i].score, 1e-4) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RandomModel,
                         testing::Values(spec::ModelType::encoder_decoder, spec::ModelType::decoder),
                         [](const auto& test) {
                           return std::string(test.param == spec::ModelType::decoder ? "decoder" : "translation");
                         });

TEST(Search, RefusesWhatMakesNoSense) {
  BoundModel bound = constant({0.3, 0.1, 0.6}, 8);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refuse = [&](Fault fault, const SearchOptions& options, const Ids& source, const char* words) {
    EXPECT_TRUE(says(refusal(fault, [&] { (void)best(bound, options, source); }), words));
  };
  refuse(Fault::usage, {.beam = 0}, {1, 0}, "--beam: expected at least 1");
  refuse(Fault::usage, {.length_penalty = nan}, {1, 0}, "--length-penalty");
  refuse(Fault::usage, {.patience = 0}, {1, 0}, "--patience");
  refuse(Fault::usage, {.patience = nan}, {1, 0}, "--patience");
  refuse(Fault::usage, {.max_length = 0}, {1, 0}, "--max-length: expected at least 1");
  refuse(Fault::usage, {.max_length_factor = -1}, {1, 0}, "--max-length-factor");
  refuse(Fault::usage, {.min_length = -1}, {1, 0}, "--min-length");
  refuse(Fault::usage, {.batch_elements = 0}, {1, 0}, "batch_elements");
  refuse(Fault::data, {}, {}, "at least one token id");
  refuse(Fault::data, {}, Ids(9, 1), "at most 8 positions");
  model::Inference inference(*bound.model);
  EXPECT_TRUE(decode::search(inference, {}, {}).empty());

  bound.parameter("decoder/projection/bias").weight[1].fill_(nan);
  refuse(Fault::numeric, {.beam = 2}, {1, 0}, "NaN");
}

}  // namespace
}  // namespace argosy::test
