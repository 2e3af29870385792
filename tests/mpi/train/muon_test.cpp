#include <ATen/ops/linalg_svdvals.h>

#include "mpi/train/rank.hpp"
#include "plan/traffic_model.hpp"
#include "support/recording.hpp"

/// An optimizer that updates matrices as a whole, on ranks that each hold a part of them.
namespace argosy::test {
namespace {

class MuonOnRanks : public OnRanks {
 protected:
  RecordingCollectives nobody_{partition::Layout{}, 0};
  const spec::Architecture shape_ = small_shape();
};

TEST(Muon, MakesTheSingularValuesOfEachStackedMatrixNearOne) {
  RecordingCollectives nobody{partition::Layout{}, 0};
  Rank rank{small_shape(), partition::Layout{}, 0, nobody, {.muon = true}};
  (void)rank.step({copy_batch(small_shape(), 1, 40)}, 1e-3);
  std::vector<std::string> names;
  for (std::size_t u = 0; u < rank.model().units().size(); ++u) {
    const spec::Unit& unit = rank.model().spec().units[u];
    if (!unit.is_block) continue;
    const partition::FlatSpace& space = rank.model().units()[u].space();
    for (const spec::Matrix& matrix : unit.matrices()) {
      if (matrix.columns == 1) continue;
      const at::Tensor applied = rank.buffers()
                                     .units()[u]
                                     .shard.gradient
                                     .narrow(0, space.offset(space.index_of(matrix.parameter->name)) + matrix.begin,
                                             matrix.rows * matrix.columns)
                                     .view({matrix.rows, matrix.columns});
      const at::Tensor values = at::linalg_svdvals(applied);
      EXPECT_LT(values.max().item<double>(), 1.3) << matrix.name;
      EXPECT_GT(values[values.numel() / 4].item<double>(), 0.6) << matrix.name << ": of few rows, so not of full rank";
      names.push_back(matrix.name);
    }
  }
  EXPECT_EQ(std::count(names.begin(), names.end(), "decoder/layer_1/self_attention/linear_0/weight/value"), 1);
}

TEST_P(MuonOnRanks, UpdatesAsOnOneRankInEveryScheme) {
  const auto batches = uneven_batches(shape_, 4, 1);
  for (const plan::Scheme scheme : all_schemes) {
    for (const auto& [type, master] : {all_types[0], all_types[1]}) {
      SCOPED_TRACE(fmt::format("scheme {}, {}", static_cast<int>(scheme), at::toString(type)));
      Rank alone{shape_, partition::Layout{}, 0, nobody_, {.type = type, .muon = true}};
      Rank shared{shape_, layout(), me(), *collectives_, {.scheme = scheme, .type = type, .muon = true}};
      const std::vector<double> initial = alone.weights();
      for (int step = 0; step < 3; ++step) {
        if (step > 0) shared.poison();
        (void)alone.step(batches, 1e-2);
        (void)shared.step(batches, 1e-2);
      }
      double most = 0, change = 0;
      const std::vector<double> one = alone.weights(), many = shared.weights();
      for (std::size_t i = 0; i < one.size(); ++i) {
        most = std::max(most, std::abs(one[i] - many[i]));
        change = std::max(change, std::abs(one[i] - initial[i]));
      }
      EXPECT_LT(most, (type == at::kFloat ? 0.02 : 0.5) * change);
    }
  }
}

TEST_P(MuonOnRanks, SendsWhatThePlanSays) {
  for (const plan::Scheme scheme : all_schemes) {
    const auto collectives = comm::make_mpi_collectives(topology_);
    Rank rank{shape_, layout(), me(), *collectives, {.scheme = scheme, .muon = true}};
    (void)rank.step(uneven_batches(shape_, 2 * layout().world(), 1), 1e-3);
    const std::vector<double> sent = sent_by_rank(*collectives);
    std::vector<partition::FlatSpace> spaces;
    for (const model::Unit& unit : rank.model().units()) spaces.push_back(unit.space());
    const plan::StepTraffic planned =
        plan::planned_traffic(rank.plan(2), spaces, {.weight = 4}, comm::Reduction::exact);
    EXPECT_EQ(*std::max_element(sent.begin(), sent.end()), static_cast<double>(planned.rank()));
  }
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, MuonOnRanks, testing::ValuesIn(hierarchies()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace argosy::test
