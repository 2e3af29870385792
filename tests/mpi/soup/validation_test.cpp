#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "checkpoint/shard_file.hpp"
#include "soup/soup.hpp"
#include "support/refusal.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

namespace argosy::soup {
namespace {

using testing::AllOf, testing::HasSubstr;

/// Three checkpoints, and an evaluator that measures how far a checkpoint is from the mean of some of them.
class ValidatedSoups : public testing::Test {
 protected:
  ValidatedSoups() {
    config.inputs =
        test::save_three(context, folder / "run", test::tiny_units(), [](int) { return test::toy_sections(); });
    config.output = (folder / "soup").string();
  }
  /// Squared distances from the mean of `seeds`, of sixteen batches; fails when there were too many evaluations.
  std::vector<double> distances(const comm::Communicator& ranks, const checkpoint::Reader& checkpoint,
                                const std::vector<std::uint64_t>& seeds) {
    comm::agree(ranks, [&] {
      if (++evaluations > most_evaluations) throw Error{Fault::io, {.wanted = "power", .got = "none"}};
    });
    const std::vector<float> weights = checkpoint.read_parameter("head/weight");
    std::vector<double> by_batch(16);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      double mean = 0;
      for (const std::uint64_t seed : seeds)
        mean += test::element("head/weight", 0, static_cast<std::int64_t>(i), seed);
      by_batch[i % 16] += std::pow(weights[i] - mean / static_cast<double>(seeds.size()), 2);
    }
    return by_batch;
  }
  Evaluator towards(const std::vector<std::uint64_t>& seeds) {
    return {.identity = identity, .evaluate = [this, seeds](const checkpoint::Reader& checkpoint) {
              ValidationLoss found{.by_batch = distances(test::world(), checkpoint, seeds)};
              found.loss = std::accumulate(found.by_batch.begin(), found.by_batch.end(), 0.0);
              return found;
            }};
  }
  SoupResult make(const Evaluator& evaluate) {
    SoupResult report = make_soup(context.get(), config, evaluate);
    test::world().barrier("soup made");
    return report;
  }
  std::string shard_of(const Path& soup) { return Files::system().read_text(soup / checkpoint::shard_name(0, 1)); }

  Os os;
  test::TestContext context{os, test::world()};
  test::SharedFolder folder;
  SoupConfig config;
  std::string identity = "distance";
  int evaluations = 0, most_evaluations = 1000;
};

using Names = std::vector<std::string>;

TEST_F(ValidatedSoups, GreedyIsBitwiseTheUniformMeanOfItsMembers) {
  config.recipe = {.type = RecipeType::greedy};
  const SoupResult report = make(towards({10, 30}));
  EXPECT_EQ(report.inputs, 2U);
  EXPECT_EQ(evaluations, 5) << "three alone, two mixtures; the choice is not evaluated again";
  ASSERT_TRUE(report.comparison);
  EXPECT_LT(report.comparison->loss, report.comparison->best_member_loss / 1000);
  EXPECT_EQ(figures(report).at("loss").as_double(), report.comparison->loss);
  ASSERT_EQ(figures(report).at("losses").as_array().size(), 3U) << "of each evaluated checkpoint, in the order given";
  EXPECT_EQ(figures(report).at("losses").at(1).at("path").as_string(), config.inputs[1]);
  EXPECT_EQ(figures(report).at("losses").at(0).at("loss").as_double(), report.comparison->best_member_loss);
  const checkpoint::Reader greedy{Files::system(), config.output};
  const boost::json::object& said = greedy.sections().soup;
  EXPECT_EQ(said.at("recipe"), "greedy");
  EXPECT_EQ(said.at("weights"), (boost::json::array{0.5, 0.5}));
  EXPECT_EQ(said.at("inputs").as_array()[1].at("step"), 30);
  ASSERT_EQ(said.at("decisions").as_array().size(), 3U);
  EXPECT_EQ(said.at("decisions").as_array()[2].at("path").as_string(), config.inputs[1]);
  EXPECT_FALSE(said.at("decisions").as_array()[2].at("accepted").as_bool());

  config.recipe = {};
  config.inputs.erase(config.inputs.begin() + 1);
  config.output = (folder / "uniform").string();
  make({});
  EXPECT_TRUE(shard_of(folder / "soup") == shard_of(folder / "uniform"));
  EXPECT_EQ(folder.names(), (Names{"run", "soup", "uniform"})) << "neither temporary soups nor a journal";
}

TEST_F(ValidatedSoups, GreedyTakesTheBestAloneWhenNothingImprovesIt) {
  config.recipe = {.type = RecipeType::greedy};
  const SoupResult report = make(towards({20}));
  EXPECT_EQ(report.inputs, 1U);
  EXPECT_EQ(report.comparison->best_member, config.inputs[1]);
  const checkpoint::Reader soup{Files::system(), config.output};
  EXPECT_TRUE(soup.read_parameter("head/weight") ==
              checkpoint::Reader(Files::system(), config.inputs[1]).read_parameter("head/weight"));
  config.output = (folder / "strict").string();
  config.recipe.min_delta = 1e9;
  EXPECT_EQ(make(towards({10, 30})).inputs, 1U) << "no gain is large enough";
}

TEST_F(ValidatedSoups, AGainMayBeTooSmallOrDueToChance) {
  // A mean of two is better in one batch of eight; a third member changes nothing.
  const Evaluator evaluate{.identity = "one of eight", .evaluate = [](const checkpoint::Reader& checkpoint) {
                             const double eighth = checkpoint.sections().soup.empty() ? 1 : 0.5;
                             return ValidationLoss{7 + eighth, {1, 1, 1, 1, 1, 1, 1, eighth}};
                           }};
  const auto members = [&](std::optional<double> min_delta, std::optional<double> bootstrap) {
    config.recipe = {.type = RecipeType::greedy, .min_delta = min_delta, .bootstrap = bootstrap};
    config.output += "+";
    return make(evaluate).inputs;
  };
  EXPECT_EQ(members({}, {}), 2U) << "an equal loss is no gain";
  EXPECT_EQ(members(0.4, {}), 2U);
  EXPECT_EQ(members(0.5, {}), 1U);
  EXPECT_EQ(members({}, 0.5), 2U) << "better in 0.656 of resamplings";
  EXPECT_EQ(members({}, 0.9), 1U);
}

TEST_F(ValidatedSoups, WhatHasNoLossIsNeitherBestNorCommitted) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double soup = 1;
  const Evaluator evaluate{.identity = "the first fails", .evaluate = [&](const checkpoint::Reader& checkpoint) {
                             const bool fails = checkpoint.directory() == Path{config.inputs[0]};
                             return ValidationLoss{fails ? nan : checkpoint.sections().soup.empty() ? 2 : soup};
                           }};
  EXPECT_EQ(make(evaluate).comparison->best_member, config.inputs[1]);
  soup = nan;
  config.output = (folder / "nan").string();
  test::refusal(Fault::numeric, [&] { make(evaluate); });
  EXPECT_EQ(folder.names(), (Names{".nan.journal", "run", "soup"}));
}

TEST_F(ValidatedSoups, ReportsOnWhatDecidedNothing) {
  config.recipe = {.type = RecipeType::greedy};
  Evaluator evaluate = towards({20, 30, 30});
  evaluate.report = [other = towards({20})](const checkpoint::Reader& checkpoint) {
    return other.evaluate(checkpoint).loss;
  };
  const SoupResult report = make(evaluate);
  EXPECT_EQ(report.inputs, 2U) << "the report decides nothing";
  EXPECT_EQ(evaluations, 7) << "the soup and its best member";
  EXPECT_EQ(figures(report).at("reported_loss").as_double(), report.comparison->reported_loss);
  EXPECT_GT(report.comparison->reported_loss, report.comparison->loss);
  EXPECT_EQ(report.comparison->best_member, config.inputs[2]);
  const checkpoint::Reader best{Files::system(), report.comparison->best_member};
  EXPECT_EQ(towards({20}).evaluate(best).loss, report.comparison->reported_best_member_loss);
  const checkpoint::Reader soup{Files::system(), config.output};
  EXPECT_EQ(towards({20}).evaluate(soup).loss, report.comparison->reported_loss);
  EXPECT_EQ(soup.sections().soup.at("report").at("loss").as_double(), report.comparison->reported_loss);
  EXPECT_EQ(folder.names(), (Names{"run", "soup"}));
}

TEST_F(ValidatedSoups, AValidationThatWasCutShortGoesOn) {
  config.recipe = {.type = RecipeType::greedy, .bootstrap = 0.9};
  most_evaluations = 4;
  test::refusal(Fault::io, [&] { make(towards({10, 30})); });
  EXPECT_EQ(folder.names(), (Names{".soup.journal", "run"}));
  evaluations = 0;
  most_evaluations = 1;
  EXPECT_EQ(make(towards({10, 30})).inputs, 2U) << "only the mixture that was missing is evaluated";
  EXPECT_EQ(folder.names(), (Names{"run", "soup"}));
}

TEST_F(ValidatedSoups, LossesOfOtherRanksAreNotPairedWithThoseOfThese) {
  config.recipe = {.type = RecipeType::greedy, .bootstrap = 0.9};
  // Sixteen batches, dealt over the ranks like those of sets: each gains a little from the mean of 10 and 30, and has a
  // loss of a size of its own, so that losses of two different batches say nothing.
  const auto dealt = [&](const comm::Communicator& ranks) {
    return Evaluator{.identity = identity, .evaluate = [&](const checkpoint::Reader& checkpoint) {
                       const std::vector<double> batches = distances(ranks, checkpoint, {10, 30});
                       ValidationLoss found;
                       for (int rank = 0; rank < ranks.size(); ++rank)
                         for (int batch = rank; batch < 16; batch += ranks.size()) {
                           found.by_batch.push_back(batches[static_cast<std::size_t>(batch)] + 1e6 * batch);
                           found.loss += found.by_batch.back();
                         }
                       return found;
                     }};
  };
  most_evaluations = 3;  // of each by itself
  test::refusal(Fault::io, [&] { make(dealt(test::world())); });
  most_evaluations = 1000;
  const comm::Communicator own_world = test::world().split(test::world().rank() == 0 ? 0 : 1, 0);
  if (test::world().rank() == 0) {
    test::TestContext alone{os, own_world};
    EXPECT_EQ(make_soup(alone.get(), config, dealt(own_world)).inputs, 2U);
  }
}

TEST_F(ValidatedSoups, AJournalCountsForItsOwnEvaluationOnly) {
  config.recipe = {.type = RecipeType::greedy};
  most_evaluations = 4;
  test::refusal(Fault::io, [&] { make(towards({10, 30})); });
  evaluations = 0;
  most_evaluations = 1000;
  identity = "another";
  EXPECT_EQ(make(towards({20})).inputs, 1U);
  EXPECT_EQ(evaluations, 5);
  folder.write(".third.journal", "{\"a");  // torn
  config.output = (folder / "third").string();
  EXPECT_EQ(make(towards({10, 30})).inputs, 2U);
  EXPECT_EQ(folder.names(), (Names{"run", "soup", "third"}));
}

TEST_F(ValidatedSoups, AJournalCountsForThoseWeightsAndThatTypeOnly) {
  const auto evaluations_of = [&] {
    const int before = evaluations;
    test::refusal(Fault::numeric, [&] { make(towards({10})); });
    return evaluations - before;
  };
  EXPECT_EQ(evaluations_of(), 4);
  EXPECT_EQ(evaluations_of(), 0);
  config.recipe = {.type = RecipeType::weighted, .weights = {1, 2, 1}};
  EXPECT_EQ(evaluations_of(), 1);
  config.recipe.weights = {2, 1, 1};
  EXPECT_EQ(evaluations_of(), 1);
  config.recipe.normalize = false;
  EXPECT_EQ(evaluations_of(), 1);
  config.recipe = {};
  config.dtype = DType::bf16;
  EXPECT_EQ(evaluations_of(), 1);
}

TEST_F(ValidatedSoups, AWorseSoupIsNotCommittedUnlessAllowed) {
  EXPECT_THAT(test::refusal(Fault::numeric, [&] { make(towards({10})); }),
              AllOf(HasSubstr(" more than its best checkpoint"), HasSubstr("000000010"), HasSubstr("--allow-worse")));
  EXPECT_EQ(folder.names(), (Names{".soup.journal", "run"}));
  EXPECT_EQ(evaluations, 4);
  config.allow_worse = true;
  const SoupResult report = make(towards({10}));
  EXPECT_EQ(evaluations, 4) << "all losses are known";
  const checkpoint::Reader second{Files::system(), config.inputs[1]};
  EXPECT_EQ(report.comparison->losses[1].second, towards({10}).evaluate(second).loss) << "to the last bit";
  EXPECT_GT(report.comparison->loss, report.comparison->best_member_loss);
  EXPECT_EQ(report.comparison->best_member, config.inputs[0]);
  EXPECT_EQ(folder.names(), (Names{"run", "soup"}));
}

TEST_F(ValidatedSoups, ABetterSoupIsCommittedAsItWasEvaluated) {
  const SoupResult report = make(towards({10, 20, 30}));
  EXPECT_LT(report.comparison->loss, report.comparison->best_member_loss);
  const checkpoint::Reader soup{Files::system(), config.output};
  soup.verify();
  EXPECT_EQ(soup.sections().soup.at("recipe"), "uniform");
  EXPECT_EQ(folder.names(), (Names{"run", "soup"}));
}

}  // namespace
}  // namespace argosy::soup
