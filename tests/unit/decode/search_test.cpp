#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <limits>
#include <set>

#include "decode/decode.hpp"
#include "support/refusal.hpp"
#include "unit/decode/models.hpp"

namespace argosy::test {
namespace {

using decode::Hypothesis, decode::SearchOptions, decode::Source;
using Ids = std::vector<std::int32_t>;

Hypothesis best(BoundModel& bound, const SearchOptions& options, const Ids& source = {1, 0}) {
  model::Inference inference(*bound.model);
  return decode::search(inference, {{source}}, options).front().front();
}

std::vector<Hypothesis> several(BoundModel& bound, const SearchOptions& options, const Source& source) {
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
        if (!shape.prefix_lm) read.pop_back();
      }
      ids.insert(ids.end(), prefix.begin(), prefix.end());
      model::Cache cache = inference.start();
      inference.add(cache, at::tensor(read, at::kLong).unsqueeze(0), at::tensor({std::ssize(read)}, at::kLong));
      std::vector<at::Tensor> steps_logits;
      for (const std::int64_t id : ids) steps_logits.push_back(inference.step(cache, at::tensor({id}, at::kLong)));
      const at::Tensor logits = at::cat(steps_logits).narrow(1, 0, live);
      const auto is_never = [&](std::int64_t id) {
        return id != eos && (id == shape.vocabulary.start || id == shape.vocabulary.filler());
      };
      for (std::int64_t id = 0; id < live; ++id)
        if (is_never(id)) logits.select(1, id).fill_(-1e9);
      const at::Tensor log_p = at::log_softmax(logits.to(at::kDouble), 1);
      double sum = 0;
      for (std::size_t i = 0; i < prefix.size(); ++i)
        sum += log_p[static_cast<std::int64_t>(i)][prefix[i]].item<double>();
      for (std::int64_t id = 0; id < live; ++id) {
        if (is_never(id)) continue;
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

/// The shape of a model of so many live ids.
using ShapeOf = spec::Architecture (*)(std::int64_t live);
class RandomModel : public testing::TestWithParam<std::pair<const char*, ShapeOf>> {};

TEST_P(RandomModel, ABeamThatHoldsEverythingFindsTheBestOfAll) {
  spec::Architecture shape = GetParam().second(5), own_ids = shape;
  own_ids.vocabulary.start = own_ids.vocabulary.eos;  // as in M2M-100
  own_ids.vocabulary.pad = 2;
  std::size_t lengths = 0;
  for (const spec::Architecture& of : {shape, own_ids}) {
    BoundModel bound(of, at::kFloat, 3);
    for (const at::Tensor& flat : bound.weights) flat.mul_(1.5);  // clear preferences
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
  }
  EXPECT_GT(lengths, 1U);  // not all empty
}

TEST_P(RandomModel, ResultsDoNotDependOnTheBatch) {
  BoundModel bound(GetParam().second(21), at::kFloat, 5);
  for (const at::Tensor& flat : bound.weights) flat.mul_(1.5);
  const bool takes_prefix = bound.model->architecture().type == spec::ModelType::encoder_decoder;
  std::vector<Source> sources;
  for (std::int32_t i = 0; i < 9; ++i) {
    Ids ids;
    for (std::int32_t k = 0; k < 1 + (i * 5) % 7; ++k) ids.push_back(1 + (i * 3 + k * 7) % 20);
    ids.push_back(0);
    sources.push_back(
        {ids, takes_prefix ? Ids(static_cast<std::size_t>(i % 3), 5) : Ids(), 70 - static_cast<std::uint64_t>(i)});
  }
  for (const SearchOptions& options :
       {SearchOptions{.max_length = 12},
        {.beam = 3, .max_length = 12},
        {.beam = 2, .max_length = 12, .min_length = 4},
        {.beam = 3, .nbest = 3, .max_length = 12, .no_repeat_ngram = 2, .repetition_penalty = 1.5},
        {.nbest = 3, .max_length = 12, .sample = true, .seed = 3}}) {
    std::vector<std::vector<Hypothesis>> apart;
    for (const Source& source : sources) apart.push_back(several(bound, options, source));
    for (const std::int64_t elements : {1, 9, 20, 4096}) {  // 9 and 20: sentences enter while others are at work
      SearchOptions batched = options;
      model::Inference inference(*bound.model);
      batched.batch_elements = elements;
      const std::vector<std::vector<Hypothesis>> together = decode::search(inference, sources, batched);
      ASSERT_EQ(together.size(), sources.size());
      for (std::size_t i = 0; i < sources.size(); ++i) {
        ASSERT_EQ(together[i].size(), apart[i].size()) << i;
        for (std::size_t k = 0; k < apart[i].size(); ++k) {
          EXPECT_EQ(together[i][k].ids, apart[i][k].ids) << i;
          EXPECT_NEAR(together[i][k].score, apart[i][k].score, 1e-4) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, RandomModel,
    testing::Values(std::pair<const char*, ShapeOf>{"translation",
                                                    [](std::int64_t live) {
                                                      return shape_of(spec::ModelType::encoder_decoder, live);
                                                    }},
                    std::pair<const char*, ShapeOf>{
                        "decoder", [](std::int64_t live) { return shape_of(spec::ModelType::decoder, live); }},
                    std::pair<const char*, ShapeOf>{"prefix_lm", prefix_lm}),
    [](const auto& test) { return std::string(test.param.first); });

TEST(Search, ScoresFollowTheLengthPenaltyOfEachType) {
  // Four finish: EOS .3, "a" .18, "aa" .108 and "aaa" .0648.
  BoundModel bound = constant({0.3, 0.1, 0.6});
  using decode::LengthPenalty;
  const auto expect = [&](double alpha, LengthPenalty type, double word_penalty, const Ids& ids, double score) {
    const SearchOptions options{
        .beam = 2, .length_penalty = alpha, .length_penalty_type = type, .word_penalty = word_penalty, .patience = 2};
    expect_best(bound, options, ids, score);
  };
  expect(2, LengthPenalty::power, 0, {2, 2, 2}, std::log(0.0648) / 16);
  expect(2, LengthPenalty::wu, 0, {}, std::log(0.3));
  expect(6, LengthPenalty::wu, 0, {2, 2, 2}, std::log(0.0648) / std::pow(1.5, 6));
  expect(0, LengthPenalty::power, 1, {}, std::log(0.3) - 1);
  expect(0, LengthPenalty::power, -1, {2, 2, 2}, std::log(0.0648) + 4);
  expect(1, LengthPenalty::power, -1, {2, 2, 2}, (std::log(0.0648) + 4) / 4);
  // Goes on although the most probable one has finished.
  BoundModel ends = constant({0.6, 0.1, 0.3});
  expect_best(ends, {.beam = 2, .length_penalty = 0, .word_penalty = -2, .patience = 2}, {2, 2, 2},
              std::log(0.0162) + 8);
}

TEST(Beam, GivesTheBestOnesInTheirOrder) {
  // Finished: EOS .3, then "a" .18, "aa" .108, "aaa" .0648.
  BoundModel bound = constant({0.3, 0.1, 0.6});
  const auto found = several(bound, {.beam = 2, .nbest = 2, .patience = 2}, {{1, 0}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].ids, (Ids{2, 2, 2}));
  EXPECT_NEAR(found[0].score, std::log(0.0648) / 4, 1e-5);
  EXPECT_NEAR(found[0].log_probability, std::log(0.0648), 1e-5);
  EXPECT_EQ(found[1].ids, (Ids{2, 2}));
  // As many are waited for as are asked for.
  EXPECT_EQ(several(bound, {.beam = 4, .nbest = 4, .patience = 0.25}, {{1, 0}}).size(), 4U);
  EXPECT_EQ(several(bound, {.beam = 2, .nbest = 2, .length_penalty = 0}, {{1, 0}}).size(), 2U);
  // There are no more than there is to say.
  EXPECT_EQ(several(bound, {.beam = 8, .nbest = 8, .max_length = 1}, {{1, 0}}).size(), 3U);
}

TEST(Search, NoSequenceOfIdsComesTwice) {
  BoundModel bound = constant({0.1, 0.1, 0.5, 0.3});
  EXPECT_EQ(best(bound, {.max_length = 4}).ids, (Ids{2, 2, 2, 2}));
  EXPECT_EQ(best(bound, {.max_length = 4, .no_repeat_ngram = 1}).ids, (Ids{2, 3}));  // then EOS, the lower of two
  EXPECT_EQ(best(bound, {.max_length = 6, .no_repeat_ngram = 2}).ids, (Ids{2, 2, 3, 2}));
}

TEST(Search, PenaltiesSeeThePromptOfALanguageModel) {
  BoundModel bound = constant({0.1, 0.1, 0.1, 0.4, 0.3}, 32, spec::ModelType::decoder);
  EXPECT_EQ(best(bound, {.max_length = 1}, {1, 3}).ids, Ids{3});
  EXPECT_EQ(best(bound, {.max_length = 1, .no_repeat_ngram = 1}, {1, 3}).ids, Ids{4});
  EXPECT_EQ(best(bound, {.max_length = 1, .repetition_penalty = 2}, {1, 3}).ids, Ids{4});
  // A source is no part of a translation.
  BoundModel translation = constant({0.1, 0.2, 0.7});
  EXPECT_EQ(best(translation, {.max_length = 1, .no_repeat_ngram = 1, .repetition_penalty = 9}, {2, 0}).ids, Ids{2});
}

TEST(Search, RepetitionIsPenalizedBeforeTheSoftmax) {
  // log .6 · 2 = log .36: the second id has .36 to .3 and .1 of the others.
  BoundModel bound = constant({0.3, 0.1, 0.6});
  const Hypothesis found = best(bound, {.max_length = 2, .repetition_penalty = 2});
  EXPECT_EQ(found.ids, (Ids{2, 2}));
  EXPECT_NEAR(found.log_probability, std::log(0.6) + std::log(0.36 / 0.76), 1e-5);
}

TEST(Search, APrefixIsCertainAndCountsInTheLength) {
  BoundModel bound = constant({0.3, 0.1, 0.6});
  for (const std::int64_t beam : {1, 2}) {
    const auto found = several(bound, {.beam = beam, .max_length = 4}, {{1, 0}, {1, 1}}).front();
    EXPECT_EQ(found.ids, (Ids{1, 1, 2, 2})) << beam;
    EXPECT_NEAR(found.log_probability, 2 * std::log(0.6), 1e-5);
    EXPECT_NEAR(found.score, 2 * std::log(0.6) / 4, 1e-5);
  }
  BoundModel ends = constant({0.6, 0.1, 0.3});
  EXPECT_EQ(several(ends, {.min_length = 3}, {{1, 0}, {1}}).front().ids, (Ids{1, 2, 2}));
  EXPECT_EQ(several(bound, {.max_length = 2}, {{1, 0}, {1, 1, 1}}).front().ids, (Ids{1, 1, 1, 2}));
  EXPECT_EQ(several(bound, {.no_repeat_ngram = 1}, {{1, 0}, {2}}).front().ids, Ids{2});
  // The position table holds 32, the last one of which gives the last id.
  EXPECT_EQ(several(bound, {.max_length_factor = 0}, {{1, 0}, Ids(31, 2)}).front().ids.size(), 32U);
  EXPECT_TRUE(says(refusal(Fault::data,
                           [&] {
                             (void)several(bound, {}, {{1, 0}, Ids(32, 2)});
                           }),
                   "sentence 1: expected a prefix of at most 31 ids, got 32"));
}

TEST(Search, EndsWhereTheCallerSaysSo) {
  BoundModel bound = constant({0.1, 0.1, 0.8});
  const auto four = [](std::span<const std::int32_t> ids) { return ids.size() == 4; };
  expect_best(bound, {.stop = four}, {2, 2, 2, 2}, std::log(0.8));
  for (const Hypothesis& found : several(bound, {.beam = 3, .nbest = 3, .stop = four}, {{1, 0}}))
    EXPECT_LE(found.ids.size(), 4U);
  for (const Hypothesis& found : several(bound, {.nbest = 9, .sample = true, .stop = four}, {{1, 0}}))
    EXPECT_LE(found.ids.size(), 4U);
}

TEST(Beam, WhatTakesThePlaceOfAFinishedOneHasNotEndedItself) {
  const auto best_with = [](const std::vector<double>& probabilities, const std::function<bool(std::int32_t)>& last) {
    BoundModel bound = constant(probabilities);
    const auto stop = [&](std::span<const std::int32_t> ids) { return last(ids.back()); };
    return best(bound, {.beam = 2, .length_penalty = 2, .patience = 2, .stop = stop}).ids;
  };
  // Finished: "1" .4, "3" .3, "21" .032, "23" .024. "4" may not go on: "41" would be the best.
  EXPECT_EQ(best_with({0.02, 0.4, 0.08, 0.3, 0.2}, [](std::int32_t id) { return id != 2; }), (Ids{2, 1}));
  // Nothing takes the place of the second, which may not go on either: "31" would be the best.
  EXPECT_EQ(best_with({0.02, 0.5, 0.08, 0.4}, [](std::int32_t id) { return id != 2; }), Ids{1});
  // When all have ended, the search has.
  EXPECT_EQ(best_with({0.02, 0.5, 0.08, 0.4}, [](std::int32_t) { return true; }), Ids{1});
}

TEST(Sampling, DrawsAreTheModelsAndIndependentOfEachOther) {
  BoundModel bound = constant({0.5, 0.1, 0.4});
  const SearchOptions options{.nbest = 1000, .max_length = 8, .sample = true, .seed = 5};
  const auto found = several(bound, options, {{1, 0}});
  ASSERT_EQ(found.size(), 1000U);
  // Half of them end at once, half of the rest one later …
  const auto of_length = [&](std::size_t length) {
    return std::count_if(found.begin(), found.end(), [&](const Hypothesis& one) { return one.ids.size() == length; });
  };
  const auto expect_share = [&](std::int64_t count, double share) {
    EXPECT_NEAR(static_cast<double>(count), 1000 * share, 5 * std::sqrt(1000 * share * (1 - share)));
  };
  for (std::size_t length = 0; length < 4; ++length) expect_share(of_length(length), std::pow(0.5, length + 1));
  const auto is_short = [](const Hypothesis& one) { return one.ids == Ids{1}; };
  expect_share(std::count_if(found.begin(), found.end(), is_short), 0.05);
  for (const Hypothesis& one : found) {
    if (is_short(one)) {
      EXPECT_NEAR(one.log_probability, std::log(0.05), 1e-5);
    }
  }

  const auto ids_of = [&](const SearchOptions& changed, std::uint64_t line) {
    std::vector<Ids> ids;
    for (const Hypothesis& one : several(bound, changed, {{1, 0}, {}, line})) ids.push_back(one.ids);
    return ids;
  };
  SearchOptions few = options, reseeded = options;
  few.nbest = 10;
  reseeded.seed = 6;
  const std::vector<Ids> first = ids_of(options, 0), fewer = ids_of(few, 0);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), first.begin()));
  EXPECT_NE(ids_of(options, 1), first);
  EXPECT_NE(ids_of(reseeded, 0), first);
}

TEST(Sampling, EachCutLeavesTheMostProbableIds) {
  BoundModel bound = constant({0.05, 0.15, 0.35, 0.45});
  const auto distinct = [&](SearchOptions options) {
    options.sample = true, options.nbest = 400, options.max_length = 1;
    std::set<std::int32_t> ids;
    for (const Hypothesis& one : several(bound, options, {{1, 0}})) ids.insert(one.ids.empty() ? 0 : one.ids.front());
    return ids;
  };
  using Set = std::set<std::int32_t>;
  EXPECT_EQ(distinct({}), (Set{0, 1, 2, 3}));
  EXPECT_EQ(distinct({.top_k = 2}), (Set{2, 3}));
  EXPECT_EQ(distinct({.top_p = 0.5}), (Set{2, 3}));
  EXPECT_EQ(distinct({.temperature = 0.01}), (Set{3}));
  EXPECT_EQ(distinct({.min_length = 1}), (Set{1, 2, 3}));
}

TEST(Search, RefusesWhatMakesNoSense) {
  BoundModel bound = constant({0.3, 0.1, 0.6}, 8);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refuse = [&](Fault fault, const SearchOptions& options, const Ids& source, const char* words) {
    EXPECT_TRUE(says(refusal(fault, [&] { (void)best(bound, options, source); }), words));
  };
  refuse(Fault::usage, {.beam = 0}, {1, 0}, "--beam: expected at least 1");
  refuse(Fault::usage, {.length_penalty = nan}, {1, 0}, "--length-penalty");
  refuse(Fault::usage, {.word_penalty = nan}, {1, 0}, "--word-penalty");
  refuse(Fault::usage, {.patience = 0}, {1, 0}, "--patience");
  refuse(Fault::usage, {.patience = nan}, {1, 0}, "--patience");
  refuse(Fault::usage, {.max_length = 0}, {1, 0}, "--max-length: expected at least 1");
  refuse(Fault::usage, {.max_length_factor = -1}, {1, 0}, "--max-length-factor");
  refuse(Fault::usage, {.min_length = -1}, {1, 0}, "--min-length");
  refuse(Fault::usage, {.batch_elements = 0}, {1, 0}, "batch_elements");
  refuse(Fault::usage, {.nbest = 0}, {1, 0}, "--nbest: expected at least 1");
  refuse(Fault::usage, {.beam = 2, .nbest = 3}, {1, 0}, "--nbest 3 is more than the hypotheses of --beam 2");
  refuse(Fault::usage, {.beam = 2, .sample = true}, {1, 0}, "--beam: expected 1 with --sample");
  refuse(Fault::usage, {.no_repeat_ngram = -1}, {1, 0}, "--no-repeat-ngram");
  refuse(Fault::usage, {.repetition_penalty = 0}, {1, 0}, "--repetition-penalty");
  refuse(Fault::usage, {.temperature = 0}, {1, 0}, "--temperature");
  refuse(Fault::usage, {.top_k = -1}, {1, 0}, "--top-k");
  refuse(Fault::usage, {.top_p = 0}, {1, 0}, "--top-p");
  refuse(Fault::usage, {.top_p = 1.5}, {1, 0}, "--top-p");
  refuse(Fault::data, {}, {}, "at least one token id");
  refuse(Fault::data, {}, Ids(9, 1), "at most 8 positions");
  model::Inference inference(*bound.model);
  EXPECT_TRUE(decode::search(inference, {}, {}).empty());

  bound.parameter("decoder/projection/bias").weight[1].fill_(nan);
  refuse(Fault::numeric, {.beam = 2}, {1, 0}, "NaN");
  refuse(Fault::numeric, {.sample = true}, {1, 0}, "NaN");
}

}  // namespace
}  // namespace argosy::test
