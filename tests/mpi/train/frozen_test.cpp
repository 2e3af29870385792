#include <map>
#include <string>

#include "mpi/train/rank.hpp"

/// Units that are not as others are: frozen ones next to trained ones, through buffers, steps, traffic and checkpoints;
/// and one that several visits read, which is gathered once and whose gradient is reduced after the last of them.
namespace argosy::test {
namespace {

/// Of some units only a part is frozen: now the smaller one, now the larger. No unit before the decoder is trained.
spec::ModelSpec partly_frozen() {
  const std::vector<std::string> patterns{"encoder/*", "embeddings/weight", "decoder/*/ffn/*",
                                          "self_attention/*/gamma"};
  return spec::with_frozen(small_shape(), patterns);
}

class FrozenOnRanks : public OnRanks {
 protected:
  const spec::ModelSpec spec_ = with_adapters(small_shape(), {.rank = 3, .dropout = 0.3});
};

TEST(Frozen, TheGradientOfAnAdapterIsTheSlopeOfTheLoss) {
  expect_slopes(with_adapters(small_shape()), {0, 40, 256, 512, 700});
  expect_slopes(with_adapters(small_shape(), {.rank = 3, .dropout = 0.3}), {0, 40, 256, 512, 700});
}

TEST(Frozen, TheGradientsOfTheRestAreThoseOfAllOfIt) {
  const spec::ModelSpec part = partly_frozen();
  Rank some{part}, whole{small_shape()};
  const auto batches = uneven_batches(small_shape(), 3, 1);
  (void)some.step(batches, 1e-3);
  (void)whole.step(batches, 1e-3);
  std::map<std::string, at::Tensor> all;
  for (model::Unit& unit : whole.model().units())
    for (const model::Parameter& parameter : unit.parameters()) all[parameter.name] = parameter.gradient;
  std::size_t trained = 0;
  for (model::Unit& unit : some.model().units()) {
    for (const model::Parameter& parameter : unit.parameters()) {
      if (!parameter.gradient.defined()) continue;
      ++trained;
      const at::Tensor& other = all.at(parameter.name);
      EXPECT_LT((parameter.gradient - other).norm().item<double>(), 1e-5 * other.norm().item<double>())
          << parameter.name;
    }
  }
  EXPECT_GT(trained, 5U);
  EXPECT_LT(trained, all.size() * 2 / 3);
}

TEST_P(FrozenOnRanks, TrainTheRestAsOnOneRankInEveryScheme) {
  const auto expect_as_alone = [&](const spec::ModelSpec& spec, const Training& training) {
    SCOPED_TRACE(text_of(training));
    const bool fp32 = training.type == at::kFloat;
    Rank alone{spec, {.type = training.type, .master = training.master}};
    Rank shared = rank_of(spec, training);
    const std::vector<double> initial = train_both(alone, shared, 3, 1e-2, fp32 ? 1e-5 : 1e-2);
    EXPECT_LT(distance(shared.gradient(), alone.gradient()), fp32 ? 1e-3 : 0.1);
    const std::vector<double> trained = shared.weights();
    for (std::ptrdiff_t u = 0, begin = 0, end = 0; u < std::ssize(spec.units); ++u, begin = end) {
      end += shared.model().units()[static_cast<std::size_t>(u)].space().parameters();
      const bool same = std::equal(initial.begin() + begin, initial.begin() + end, trained.begin() + begin);
      EXPECT_EQ(same, spec.units[static_cast<std::size_t>(u)].frozen) << spec.units[static_cast<std::size_t>(u)].name;
    }
  };
  for (const plan::Scheme scheme : all_schemes) {
    for (const auto& [type, master] : {all_types[0], all_types[1]})
      for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block})
        expect_as_alone(spec_, {.scheme = scheme, .type = type, .master = master, .recompute = recompute});
    expect_as_alone(partly_frozen(), {.scheme = scheme});
  }
}

TEST_P(FrozenOnRanks, SendNothingButGathersOfWhatRotates) {
  for (const plan::Scheme scheme : all_schemes) {
    const auto collectives = comm::make_mpi_collectives(topology_);
    Rank rank{spec_, layout(), me(), *collectives, {.scheme = scheme}};
    const auto batches = uneven_batches(spec_.architecture, 2 * layout().world(), 1);
    (void)rank.step(batches, 1e-3);
    const std::vector<double> first = sent_by_rank(*collectives);
    (void)rank.step(batches, 1e-3);
    const std::vector<double> both = sent_by_rank(*collectives);
    double most = 0, more_at_first = 0;
    for (std::size_t r = 0; r < first.size(); ++r) {
      most = std::max(most, both[r] - first[r]);
      more_at_first += first[r] - (both[r] - first[r]);
    }
    const std::vector<partition::FlatSpace> spaces = rank.spaces();
    std::int64_t trained = 0, complete = 0;  // elements
    const plan::PlanShape shape = plan::plan_shape(spec_, layout());
    for (std::size_t u = 0; u < spec_.units.size(); ++u) {
      (spec_.units[u].frozen ? complete : trained) +=
          shape.rotates[u] && plan::rotates_weights(scheme) ? 0 : spaces[u].padded_size();
    }
    EXPECT_EQ(most, static_cast<double>(rank.planned_bytes(2)));
    EXPECT_EQ(more_at_first, static_cast<double>(4 * complete * (layout().world() - 1))) << "gathered once";
    if (!plan::rotates_weights(scheme)) {
      EXPECT_LE(rank.planned_bytes(2), 2 * 4 * trained);
    }
  }
}

TEST_P(FrozenOnRanks, ACheckpointBringsThemToAnotherLayout) {
  const spec::ModelSpec spec = with_adapters(small_shape());  // dropout depends on the number of the step
  Rank shared = rank_of(spec);
  for (std::uint64_t s = 0; s < 2; ++s) (void)shared.step(uneven_batches(spec.architecture, 4, s), 1e-3);
  RankStore store{GetParam()};
  const checkpoint::Reader saved = store.save(shared);
  Rank alone{spec};
  for (const train::UnitBuffers& unit : alone.buffers().units()) unit.shard.master.zero_();
  load(alone, saved);
  EXPECT_EQ(alone.weights(), shared.weights());
  EXPECT_EQ(alone.first_moments(), shared.first_moments());
  const auto next = uneven_batches(spec.architecture, 4, 9);
  EXPECT_NEAR(alone.step(next, 1e-3).loss_sum, shared.step(next, 1e-3).loss_sum, 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, FrozenOnRanks, testing::ValuesIn(hierarchies()), by_name);

class SharedUnitOnRanks : public OnRanks {};

TEST(SharedUnit, GradientIsTheSlopeOfTheLoss) { expect_slopes(with_shared_bias(small_shape()), {0, 7, 31}); }

TEST_P(SharedUnitOnRanks, TrainsAsOnOneRankInEveryScheme) {
  const spec::ModelSpec spec = with_shared_bias(small_shape());
  for (const plan::Scheme scheme : all_schemes) {
    for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block}) {
      Rank alone{spec};
      Rank shared = rank_of(spec, {.scheme = scheme, .recompute = recompute});
      (void)train_both(alone, shared, 2, 1e-3, 1e-5);
      EXPECT_LT(distance(shared.gradient(), alone.gradient()), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, SharedUnitOnRanks, testing::ValuesIn(hierarchies()), by_name);

}  // namespace
}  // namespace argosy::test
