#include "core/file.hpp"
#include "mpi/train/rank.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/recording.hpp"
#include "support/shared_folder.hpp"
#include "train/host_state.hpp"

/// An optimizer whose state is not by element, through buffers, steps and checkpoints.
namespace argosy::test {
namespace {

class FactoredOnRanks : public testing::TestWithParam<Hierarchy> {
 protected:
  const comm::Topology& topology_ = topology(GetParam());
  const std::unique_ptr<comm::Collectives> collectives_ = comm::make_mpi_collectives(topology_);
  RecordingCollectives nobody_{partition::Layout{}, 0};
  const spec::Architecture shape_ = small_shape();
};

/// One number per row and column of every matrix, from all ranks. **Collective** unless there is one rank.
std::vector<double> statistics_of(Rank& rank, bool alone) {
  std::vector<double> all;
  for (const train::UnitBuffers& unit : rank.buffers().units()) {
    for (const optim::Statistics::Tensor& tensor : unit.statistics.tensors) {
      for (std::size_t p = 0; p < tensor.space.params().size(); ++p) {
        const auto begin = static_cast<std::ptrdiff_t>(all.size());
        all.resize(all.size() + static_cast<std::size_t>(tensor.space.params()[p].numel()));
        for (const partition::Interval& own : partition::intervals_of(tensor.space, unit.statistics.canonical_rank)) {
          if (own.param != p) continue;
          std::copy_n(tensor.shard.const_data_ptr<float>() + own.local_offset, own.end - own.begin,
                      all.begin() + begin + own.begin);
        }
      }
    }
  }
  if (!alone) world().all_reduce(std::span<double>{all});
  return all;
}

TEST_P(FactoredOnRanks, AreThoseOfOneRankInEveryScheme) {
  const std::vector<data::Batch> batches = uneven_batches(shape_, 4, 1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const plan::Scheme scheme : {plan::Scheme::stage_1, plan::Scheme::stage_2, plan::Scheme::stage_3}) {
      Rank alone{shape_, partition::Layout{}, 0, nobody_, {.type = type, .factored = true}};
      Rank shared{shape_,
                  topology_.layout(),
                  topology_.canonical_rank(),
                  *collectives_,
                  {.scheme = scheme, .type = type, .factored = true}};
      const std::vector<double> initial = alone.weights();
      for (int step = 0; step < 3; ++step) {
        (void)alone.step(batches, 1e-3);
        (void)shared.step(batches, 1e-3);
      }
      const double bound = type == at::kFloat ? 1e-3 : 0.1;
      EXPECT_LT(distance(shared.weights(), alone.weights()), bound * distance(initial, alone.weights()));
      EXPECT_LT(distance(statistics_of(shared, false), statistics_of(alone, true)), bound);
    }
  }
}

TEST(Factored, KeepsAMeanOfEachRowAndColumnOfEveryMatrix) {
  RecordingCollectives nobody{partition::Layout{}, 0};
  const spec::Architecture shape = small_shape();
  Training training{.factored = true};
  training.optimizer.max_grad_norm = 0;
  Rank rank{shape, partition::Layout{}, 0, nobody, training};
  (void)rank.step(uneven_batches(shape, 1, 1), 1e-3);  // the first step: means of its gradient alone
  std::vector<std::string> names;
  for (std::size_t u = 0; u < rank.model().units().size(); ++u) {
    const train::UnitBuffers& unit = rank.buffers().units()[u];
    ASSERT_EQ(unit.statistics.tensors.size(), 2U);
    for (std::size_t m = 0; m < unit.statistics.matrices.size(); ++m) {
      const auto& [begin, rows, columns] = unit.statistics.matrices[m];
      const at::Tensor squares = unit.shard.gradient.narrow(0, begin, rows * columns).reshape({rows, columns}).square();
      for (const std::size_t t : {0U, 1U}) {
        const optim::Statistics::Tensor& tensor = unit.statistics.tensors[t];
        names.push_back(tensor.space.params()[m].name);
        const at::Tensor expected = squares.mean(t == 0 ? 1 : 0),
                         got = tensor.shard.narrow(0, tensor.space.offset(m), expected.numel());
        EXPECT_TRUE(got.allclose(expected, 1e-5, 1e-25)) << names.back();
      }
    }
  }
  for (const char* const name :
       {"decoder/layer_0/self_attention/linear_0/weight/key/row_mean",
        "decoder/layer_0/attention/linear_0/weight/column_mean", "encoder/layer_0/ffn/linear_0/bias/row_mean"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
}

TEST_P(FactoredOnRanks, ACheckpointBringsThemToAnotherLayout) {
  const Training training{.factored = true};
  SharedFolder folder;
  FaultyOs os;
  TestContext context{os, world(), GetParam()};
  Rank shared{shape_, topology_.layout(), topology_.canonical_rank(), *collectives_, training};
  for (std::uint64_t s = 0; s < 2; ++s) (void)shared.step(uneven_batches(shape_, 4, s), 1e-3);
  train::HostState host{shared.model(), shared.buffers(), at::kCPU};
  host.complete_copy();
  checkpoint::Store store{context.get(), folder / "run", {}};
  for (const bool with_optimizer : {true, false}) {
    const auto kind = with_optimizer ? checkpoint::Kind::temp : checkpoint::Kind::export_;
    const checkpoint::SaveReport report =
        store.save(kind, 2, host.states(with_optimizer), toy_sections(), toy_attachments());
    ASSERT_TRUE(report.committed) << report.why_not;
    EXPECT_EQ(checkpoint::Reader(Files::system(), report.directory).unit_names().size(),
              (with_optimizer ? 3 : 1) * shared.model().units().size());
  }
  Rank alone{shape_, partition::Layout{}, 0, nobody_, training};
  train::HostState other{alone.model(), alone.buffers(), at::kCPU};
  checkpoint::Reader(Files::system(), folder / "run/checkpoints/000000002").read_state(other.states(), 0);
  other.load();
  EXPECT_EQ(alone.weights(), shared.weights());
  EXPECT_EQ(statistics_of(alone, true), statistics_of(shared, false));
  EXPECT_GT(statistics_of(alone, true).front(), 0);
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, FactoredOnRanks, testing::ValuesIn(hierarchies()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace argosy::test
