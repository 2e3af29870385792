#include <ATen/ops/linalg_svdvals.h>

#include "mpi/train/rank.hpp"

/// Optimizers through buffers, steps and checkpoints: Adafactor, whose state is not by element; of tests/support
/// Quantized, whose state has another dtype for some parameters; Muon, which updates matrices as a whole, on ranks that
/// each hold a part of them.
namespace argosy::test {
namespace {

class OptimizersOnRanks : public OnRanks {
 protected:
  /// A rank of all that has taken two steps.
  [[nodiscard]] std::unique_ptr<Rank> trained(const Training& training) const {
    auto rank = std::make_unique<Rank>(shape_, layout(), me(), *collectives_, training);
    for (std::uint64_t s = 0; s < 2; ++s) (void)rank->step(uneven_batches(shape_, 4, s), 1e-3);
    return rank;
  }
  const spec::Architecture shape_ = small_shape();
  /// Without the biases of keys: their gradients are rounding errors, of which these optimizers make steps.
  const spec::Architecture unbiased_ = small_shape(0, true, false);
};

Training with(optim::OptimizerType type) {
  Training training;
  training.optimizer.type = type;
  return training;
}

/// The rank's part of the state where it is one of several. **Collective** unless it is alone.
enum class Of { one, all };
std::vector<double> summed(std::vector<double> own, Of ranks) {
  if (ranks == Of::all) world().all_reduce(std::span<double>{own});
  return own;
}

/// One number per row and column of every matrix.
std::vector<double> statistics_of(Rank& rank, Of ranks) {
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
  return summed(std::move(all), ranks);
}

TEST_P(OptimizersOnRanks, AdafactorTrainsAsOnOneRank) {
  for (const Types& types : all_types) {
    const bool is_wide = types.weights == at::kFloat;
    for (const plan::Scheme scheme : all_schemes) {
      if (!is_wide && scheme != plan::Scheme::stage_2) continue;
      Training training = with(optim::OptimizerType::adafactor);
      training.type = types.weights;
      training.master = types.master;
      training.optimizer.relative_step = scheme == plan::Scheme::stage_2;
      Rank alone{unbiased_, training};
      training.scheme = scheme;
      Rank shared = rank_of(unbiased_, training);
      const std::vector<double> initial = train_both(alone, shared, 3, 1e-3);
      const double bound = is_wide ? 1e-5 : 0.1;
      EXPECT_LT(distance(shared.weights(), alone.weights()), bound * distance(initial, alone.weights()));
      EXPECT_LT(distance(statistics_of(shared, Of::all), statistics_of(alone, Of::one)), bound);
    }
  }
}

TEST_P(OptimizersOnRanks, AdafactorHasTheSameBitsAtEveryStage) {
  const auto trained_at = [&](plan::Scheme scheme) {
    Training training = with(optim::OptimizerType::adafactor);
    training.scheme = scheme;
    Rank rank = rank_of(shape_, training);
    // One micro-batch a rank: sums in the same order at every stage.
    for (std::uint64_t s = 0; s < 3; ++s) (void)rank.step(uneven_batches(shape_, layout().world(), s), 1e-3);
    return rank.weights();
  };
  const std::vector<double> expected = trained_at(plan::Scheme::stage_1);
  for (const plan::Scheme scheme : all_schemes) EXPECT_EQ(trained_at(scheme), expected);
}

TEST(Adafactor, KeepsAMeanOfEachRowAndColumnOfEveryMatrix) {
  const spec::Architecture shape = small_shape();
  Rank rank{shape, with(optim::OptimizerType::adafactor)};
  std::vector<at::Tensor> gradients;
  rank.before_update = [&] {
    for (const train::UnitBuffers& unit : rank.buffers().units()) gradients.push_back(unit.shard.gradient.clone());
  };
  (void)rank.step(uneven_batches(shape, 1, 1), 1e-3);  // the first step: means of its gradient alone
  std::vector<std::string> names;
  for (std::size_t u = 0; u < rank.model().units().size(); ++u) {
    const train::UnitBuffers& unit = rank.buffers().units()[u];
    ASSERT_EQ(unit.statistics.tensors.size(), 2U);
    for (std::size_t m = 0; m < unit.statistics.matrices.size(); ++m) {
      const auto& [begin, rows, columns] = unit.statistics.matrices[m];
      const at::Tensor squares = gradients[u].narrow(0, begin, rows * columns).reshape({rows, columns}).square();
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
       {"decoder/layer_0/self_attention/linear_0/weight/key/exp_avg_sq_row",
        "decoder/layer_0/attention/linear_0/weight/exp_avg_sq_col", "encoder/layer_0/ffn/linear_0/bias/exp_avg_sq_row"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
}

TEST_P(OptimizersOnRanks, ACheckpointBringsAdafactorToAnotherLayout) {
  const Training training = with(optim::OptimizerType::adafactor);
  const std::unique_ptr<Rank> shared = trained(training);
  RankStore store{GetParam()};
  const checkpoint::Reader whole = store.save(*shared), weights = store.save(*shared, checkpoint::Kind::export_);
  EXPECT_EQ(whole.unit_names().size(), 3 * shared->model().units().size());
  EXPECT_EQ(weights.unit_names().size(), shared->model().units().size());
  Rank alone{shape_, training};
  load(alone, whole);
  EXPECT_EQ(alone.weights(), shared->weights());
  EXPECT_EQ(statistics_of(alone, Of::one), statistics_of(*shared, Of::all));
  EXPECT_GT(statistics_of(alone, Of::one).front(), 0);
}

/// All numbers of the state.
std::vector<double> state_of(Rank& rank, Of ranks, int canonical_rank = 0) {
  return summed(numbers_of(rank.spaces(), rank.buffers(), canonical_rank), ranks);
}

TEST_P(OptimizersOnRanks, QuantizedTrainsAsOnOneRank) {
  for (const Types& types : all_types) {
    for (const plan::Scheme scheme : all_schemes) {
      Training training{.type = types.weights, .master = types.master, .quantized = true};
      Rank alone{shape_, training};
      training.scheme = scheme;
      Rank shared = rank_of(shape_, training);
      const std::vector<double> initial = train_both(alone, shared, 3, 1e-3);
      // Gradients may differ in their last bit: where they are nothing else, as those of the biases of keys, Adam makes
      // steps of them, and a code may be the next one. Equal gradients give equal bits (unit.train).
      EXPECT_LT(distance(shared.weights(), alone.weights()), 0.01 * distance(initial, alone.weights()));
      EXPECT_LT(distance(state_of(shared, Of::all, me()), state_of(alone, Of::one)), 1e-4);
    }
  }
}

TEST_P(OptimizersOnRanks, QuantizedStaysCloseToAdamW) {
  const std::vector<data::Batch> batches = uneven_batches(shape_, 4, 1);
  Rank quantized = rank_of(shape_, {.quantized = true}), exact = rank_of(shape_);
  const std::vector<double> initial = exact.weights();
  for (int step = 0; step < 20; ++step) {
    (void)quantized.step(batches, 1e-3);
    (void)exact.step(batches, 1e-3);
  }
  const double apart = distance(quantized.weights(), exact.weights()) / distance(initial, exact.weights());
  EXPECT_LT(apart, 0.1);
  EXPECT_GT(apart, 1e-3) << "the moments are in 8 bits";
}

TEST_P(OptimizersOnRanks, ACheckpointBringsQuantizedStateToAnotherLayout) {
  const Training training{.quantized = true};
  const std::unique_ptr<Rank> shared = trained(training);
  const std::vector<double> saved = state_of(*shared, Of::all, me());
  RankStore store{GetParam()};
  const checkpoint::Reader whole = store.save(*shared), weights = store.save(*shared, checkpoint::Kind::export_);
  for (const auto& [reader, needed, written] : {std::tuple{&whole, 4, 4}, {&weights, 0, 3}}) {
    EXPECT_EQ(reader->manifest().at("min_reader").at("minor"), needed);
    EXPECT_EQ(reader->manifest().at("format_version").at("minor"), written);
    EXPECT_TRUE(reader->verify().finite);
  }
  Rank alone{shape_, training};
  load(alone, whole);
  EXPECT_EQ(state_of(alone, Of::one), saved);
  EXPECT_EQ(alone.weights(), shared->weights());
  // And back.
  Rank again = rank_of(shape_, training);
  load(again, whole, me());
  EXPECT_EQ(state_of(again, Of::all, me()), saved);
  // AdamW's moments are not there.
  Rank adamw{shape_};
  EXPECT_THROW(load(adamw, whole), Error);
}

TEST(Muon, MakesTheSingularValuesOfEachStackedMatrixNearOne) {
  Rank rank{small_shape(), {.muon = true}};
  (void)rank.step({copy_batch(small_shape(), 1, 40)}, 1e-3);
  std::vector<std::string> names;
  for (std::size_t u = 0; u < rank.model().units().size(); ++u) {
    const spec::Unit& unit = rank.model().spec().units[u];
    if (!unit.is_block) continue;
    const partition::FlatSpace& space = rank.model().units()[u].space();
    for (const spec::Matrix& matrix : unit.matrices()) {
      if (matrix.columns == 1) continue;
      const std::int64_t begin = space.offset(space.index_of(matrix.parameter->name)) + matrix.begin;
      const at::Tensor applied =
          rank.buffers().units()[u].shard.gradient.narrow(0, begin, matrix.rows * matrix.columns);
      const at::Tensor values = at::linalg_svdvals(applied.view({matrix.rows, matrix.columns}));
      EXPECT_LT(values.max().item<double>(), 1.3) << matrix.name;
      EXPECT_GT(values[values.numel() / 4].item<double>(), 0.6) << matrix.name << ": of few rows, so not of full rank";
      names.push_back(matrix.name);
    }
  }
  EXPECT_EQ(std::count(names.begin(), names.end(), "decoder/layer_1/self_attention/linear_0/weight/value"), 1);
}

TEST_P(OptimizersOnRanks, MuonTrainsAsOnOneRank) {
  for (const plan::Scheme scheme : all_schemes) {
    for (const auto& [type, master] : {all_types[0], all_types[1]}) {
      SCOPED_TRACE(fmt::format("scheme {}, {}", static_cast<int>(scheme), at::toString(type)));
      Rank alone{shape_, {.type = type, .muon = true}};
      Rank shared = rank_of(shape_, {.scheme = scheme, .type = type, .muon = true});
      const std::vector<double> initial = train_both(alone, shared, 3, 1e-2);
      const std::vector<double> one = alone.weights(), many = shared.weights();
      EXPECT_LT(largest_change(one, many), (type == at::kFloat ? 0.02 : 0.5) * largest_change(initial, one));
    }
  }
}

TEST_P(OptimizersOnRanks, MuonSendsWhatThePlanSays) {
  for (const plan::Scheme scheme : all_schemes) {
    const auto collectives = comm::make_mpi_collectives(topology_);
    Rank rank{shape_, layout(), me(), *collectives, {.scheme = scheme, .muon = true}};
    (void)rank.step(uneven_batches(shape_, 2 * layout().world(), 1), 1e-3);
    const std::vector<double> sent = sent_by_rank(*collectives);
    EXPECT_EQ(*std::max_element(sent.begin(), sent.end()), static_cast<double>(rank.planned_bytes(2)));
  }
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, OptimizersOnRanks, testing::ValuesIn(hierarchies()), by_name);

}  // namespace
}  // namespace argosy::test
