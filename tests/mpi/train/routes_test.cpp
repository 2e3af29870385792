#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "mpi/train/rank.hpp"

/// Models with components that tasks share, all of which are on every rank: a step has micro-batches of several routes.
namespace argosy::test {
namespace {

/// Three tasks: an encoder block for each source, one for all, a decoder block for each target. The second and third
/// task share their source.
spec::ModelSpec of_three_tasks() {
  spec::ModelConfig config = model_config({.width = 32, .ff = 48, .heads = 2});
  config.encoder.layers.reset();
  config.decoder.layers.reset();
  config.encoder.stacks = {{.layers = 1, .share = spec::Share::source}, {.layers = 1}};
  config.decoder.stacks = {{.layers = 1}, {.layers = 1, .share = spec::Share::target}};
  config.max_positions = 32;
  config.dropout = 0;
  return {spec::resolve(config, 23), {.tasks = {{"fr-en", "fr", "en"}, {"en-fr", "en", "fr"}, {"en-cs", "en", "cs"}}}};
}

/// Of 5 micro-batches, of which the second is empty.
std::vector<data::Batch> batches_of(const spec::ModelSpec& spec, std::uint64_t step, std::size_t routes) {
  std::vector<data::Batch> batches = uneven_batches(spec.architecture, 5, step);
  for (std::size_t j = 0; j < batches.size(); ++j)
    batches[j].route = static_cast<std::uint32_t>((j + static_cast<std::size_t>(step)) % routes);
  return batches;
}

class RoutesOnRanks : public OnRanks {
 protected:
  const spec::ModelSpec spec_ = of_three_tasks();
};

/// By name, of what has been gathered.
std::map<std::string, at::Tensor> gradients_of(Rank& rank) {
  std::map<std::string, at::Tensor> all;
  for (model::Unit& unit : rank.model().units())
    for (const model::Parameter& parameter : unit.parameters()) all[parameter.name] = parameter.gradient;
  return all;
}

TEST(Routes, TheGradientIsTheSumOverTheTasksAsPlainModels) {
  const spec::ModelSpec spec = of_three_tasks();
  Rank whole{spec};
  const auto batches = batches_of(spec, 0, 3);
  double loss = 0;
  std::map<std::string, at::Tensor> sums;
  for (std::size_t route = 0; route < 3; ++route) {
    const spec::RouteModel plain = spec::model_of_route(spec, route);
    Rank alone{plain.spec};
    std::map<std::string, at::Tensor> values;
    for (model::Unit& unit : whole.model().units())
      for (const model::Parameter& parameter : unit.parameters()) values[parameter.name] = parameter.weight;
    for (model::Unit& unit : alone.model().units())
      for (const model::Parameter& parameter : unit.parameters())
        parameter.weight.copy_(values.at(plain.stored.at(parameter.name)));
    std::vector<data::Batch> own = batches;
    for (data::Batch& batch : own) {
      if (std::exchange(batch.route, 0) == route) continue;
      const std::int64_t tokens = batch.tgt_tokens;
      batch = {};
      batch.tgt_tokens = tokens;  // counts for the mean
    }
    loss += alone.step(own, 0).loss_sum;
    for (const auto& [name, gradient] : gradients_of(alone)) {
      at::Tensor& sum = sums[plain.stored.at(name)];
      sum = sum.defined() ? sum + gradient : gradient.clone();
    }
  }
  EXPECT_NEAR(whole.step(batches, 0).loss_sum, loss, 1e-6 * loss);
  const auto gradients = gradients_of(whole);
  EXPECT_EQ(gradients.size(), sums.size());
  for (const auto& [name, gradient] : gradients) {
    const at::Tensor& sum = sums.at(name);
    EXPECT_LT((gradient - sum).norm().item<double>(), 1e-5 * sum.norm().item<double>() + 1e-9) << name;
    EXPECT_GT(sum.norm().item<double>(), 0) << name;
  }
}

TEST_P(RoutesOnRanks, TrainAsOnOneRankInEveryScheme) {
  for (const plan::Scheme scheme : all_schemes) {
    for (const plan::AccumulationOrder order :
         {plan::AccumulationOrder::depth_first, plan::AccumulationOrder::breadth_first}) {
      const Training training{.scheme = scheme, .order = order};
      SCOPED_TRACE(text_of(training));
      Rank alone{spec_}, shared = rank_of(spec_, training);
      for (std::uint64_t s = 0; s < 4; ++s) {
        if (s > 0) shared.poison();
        const auto batches = batches_of(spec_, s, s == 2 ? 1 : 3);
        const train::StepResult one = alone.step(batches, 1e-2), many = shared.step(batches, 1e-2);
        EXPECT_NEAR(one.loss_sum, many.loss_sum, 1e-5 * one.loss_sum) << s;
        EXPECT_NEAR(one.grad_norm, many.grad_norm, 1e-4 * one.grad_norm) << s;
      }
      EXPECT_LT(distance(shared.weights(), alone.weights()), 1e-4);
    }
  }
}

/// Of parameters of units, all units end to end.
std::vector<double> part_of(Rank& rank, const std::vector<double>& all,
                            const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<double> part;
  std::ptrdiff_t begin = 0;
  for (const model::Unit& unit : rank.model().units()) {
    const auto end = begin + unit.space().parameters();
    if (is_wanted(unit.name())) part.insert(part.end(), all.begin() + begin, all.begin() + end);
    begin = end;
  }
  return part;
}

TEST_P(RoutesOnRanks, ComponentsNormalisedByThemselvesAreDividedByTheirOwnTokens) {
  for (const plan::Scheme scheme : all_schemes) {
    SCOPED_TRACE(static_cast<int>(scheme));
    Training training{.scheme = scheme};
    training.optimizer.max_grad_norm = 1e9;  // no clip
    Rank by_step = rank_of(spec_, training);
    training.normalise_by_component = true;
    Rank by_component = rank_of(spec_, training);
    const auto batches = batches_of(spec_, 0, 3);
    const train::StepResult of_step = by_step.step(batches, 1e-3), of_component = by_component.step(batches, 1e-3);

    std::vector<double> tokens(3);  // by route: fr-en, en-fr, en-cs
    for (const data::Batch& batch : batches) tokens[batch.route] += static_cast<double>(batch.tgt_tokens);
    const double all = tokens[0] + tokens[1] + tokens[2];
    EXPECT_EQ(of_step.kept_tokens, tokens);
    EXPECT_NEAR(of_step.nll_sum / all, std::log(23), 1);

    // The first moments of one step are proportional to the gradient that the update took.
    const std::vector<double> small = by_step.first_moments(), large = by_component.first_moments();
    double squares = 0;
    for (std::size_t c = 0; c < spec_.components.size(); ++c) {
      const std::string& name = spec_.components[c].name;
      SCOPED_TRACE(name);
      const auto is_wanted = [&](const std::string& unit) {
        return c == 0 ? unit.find('.') == std::string::npos || unit.starts_with("encoder.1") ||
                            unit.starts_with("decoder.0")
                      : unit.starts_with(name + ".");
      };
      const double own = name == "all"                                  ? all
                         : name == "encoder.fr" || name == "decoder.en" ? tokens[0]
                         : name == "encoder.en"                         ? tokens[1] + tokens[2]
                         : name == "decoder.fr"                         ? tokens[1]
                                                                        : tokens[2];
      const double before = norm_of(part_of(by_step, small, is_wanted)),
                   after = norm_of(part_of(by_component, large, is_wanted));
      EXPECT_GT(before, 0);
      EXPECT_NEAR(after / before, all / own, 1e-5 * all / own);
      EXPECT_NEAR(of_component.component_norms[c] / of_step.component_norms[c], all / own, 1e-5 * all / own);
      squares += of_component.component_norms[c] * of_component.component_norms[c];
    }
    EXPECT_NEAR(of_component.grad_norm, std::sqrt(squares), 1e-12 * of_component.grad_norm);
    EXPECT_GT(of_component.grad_norm, 1.2 * of_step.grad_norm);
  }
}

TEST_P(RoutesOnRanks, CorporaThatShareMicroBatchesHaveLossesAndTokensOfTheirOwn) {
  const spec::ModelSpec plain{small_shape()};
  Rank rank = rank_of(plain, {});
  rank.corpora = 3;
  std::vector<data::Batch> batches = uneven_batches(plain.architecture, 5, 0);
  for (data::Batch& batch : batches)  // row by row
    for (std::int64_t i = 0; i < std::ssize(batch.target_labels); ++i)
      batch.corpora.push_back(i / batch.target_width % 3);
  const train::StepResult result = rank.step(batches, 0);
  ASSERT_EQ(result.corpora.size(), 3U);
  for (std::size_t c = 0; c < 3; ++c) {
    double nll = 0, tokens = 0;
    for (data::Batch own : batches) {
      for (std::size_t i = 0; i < own.target_labels.size(); ++i)
        if (own.corpora[i] != static_cast<std::int64_t>(c)) own.target_labels[i] = data::no_label;
      tokens += static_cast<double>(std::ranges::count_if(own.target_labels, [](auto id) { return id >= 0; }));
      nll += rank.evaluate(own) / layout().world();
    }
    EXPECT_GT(tokens, 0);
    EXPECT_EQ(result.corpora[c].tgt_tokens, tokens);
    EXPECT_NEAR(result.corpora[c].nll, nll, 1e-5 * nll);
  }
}

TEST_P(RoutesOnRanks, ElasticSumsGiveTheBitsOfOneRank) {
  const comm::CollectivesOptions elastic{.reduction = comm::Reduction::elastic};
  const comm::Topology single = comm::Topology::discover(world().split(world().rank(), 0), "alone");
  const auto one_rank = comm::make_mpi_collectives(single, elastic),
             ranks = comm::make_mpi_collectives(topology_, elastic);
  for (const plan::Scheme scheme : {plan::Scheme::stage_1, plan::Scheme::stage_2, plan::Scheme::stage_3}) {
    const Training training{.scheme = scheme,
                            .reduce_every = plan::ReduceEvery::micro_batch,
                            .normalise_by_component = scheme == plan::Scheme::stage_2};
    SCOPED_TRACE(text_of(training));
    Rank alone{spec_, single.layout(), 0, *one_rank, training}, shared{spec_, layout(), me(), *ranks, training};
    for (std::uint64_t s = 0; s < 2; ++s) {
      std::vector<data::Batch> batches = uneven_batches(spec_.architecture, 12, s);  // for 1, 2, 3 and 4 ranks
      for (std::size_t j = 0; j < batches.size(); ++j) batches[j].route = static_cast<std::uint32_t>(j * j % 3);
      (void)alone.step(batches, 1e-2);
      (void)shared.step(batches, 1e-2);
    }
    EXPECT_EQ(shared.weights(), alone.weights());
  }
}

TEST_P(RoutesOnRanks, WhatNoTaskUsesIsLeftAsItIs) {
  for (const plan::Scheme scheme : all_schemes) {
    SCOPED_TRACE(static_cast<int>(scheme));
    constexpr double lr = 1e-3;
    Rank rank = rank_of(spec_, {.scheme = scheme});
    const auto of_second = [&](const std::vector<double>& all) {
      return part_of(rank, all, [](const std::string& unit) { return unit == "encoder.en.0"; });
    };
    const std::vector<double> initial = rank.weights();
    for (std::uint64_t s = 0; s < 2; ++s) (void)rank.step(batches_of(spec_, 3 * s, 1), lr);  // fr-en alone
    const std::vector<double> trained = rank.weights();
    EXPECT_EQ(of_second(trained), of_second(initial));
    EXPECT_EQ(of_second(rank.first_moments()), std::vector<double>(of_second(initial).size()));
    EXPECT_GT(largest_change(initial, trained), lr);
    (void)rank.step(batches_of(spec_, 2, 3), lr);
    EXPECT_NEAR(largest_change(of_second(trained), of_second(rank.weights())), lr, 1e-3 * lr)
        << "Adam's first update is lr wherever the gradient is not tiny; its third is not";
  }
}

TEST_P(RoutesOnRanks, WhatTasksNoLongerUseKeepsItsWeightsAndMoments) {
  for (const plan::Scheme scheme : all_schemes) {
    SCOPED_TRACE(static_cast<int>(scheme));
    Training training{.scheme = scheme};
    training.optimizer.weight_decay = 0.1;
    Rank rank = rank_of(spec_, training);
    const auto of_second = [&](const std::vector<double>& all) {
      return part_of(rank, all, [](const std::string& unit) { return unit == "encoder.en.0"; });
    };
    (void)rank.step(batches_of(spec_, 0, 3), 1e-2);
    const std::vector<double> weights = rank.weights(), moments = rank.first_moments();
    EXPECT_GT(norm_of(of_second(moments)), 0);
    for (std::uint64_t s = 1; s < 3; ++s) (void)rank.step(batches_of(spec_, 3 * s, 1), 1e-2);  // fr-en alone
    EXPECT_EQ(of_second(rank.weights()), of_second(weights)) << "no decay, no step by old moments";
    EXPECT_EQ(of_second(rank.first_moments()), of_second(moments));
    EXPECT_NE(rank.weights(), weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, RoutesOnRanks, testing::ValuesIn(hierarchies()), by_name);

}  // namespace
}  // namespace argosy::test
