#include <ATen/ops/linalg_svdvals.h>

#include "mpi/train/made_gradients.hpp"

/// Optimizers through buffers, steps and checkpoints: Adafactor, whose state is not by element; AdamW,
/// whose state may be in other types for some parameters; Muon, which updates matrices as a whole, on ranks that
/// each hold a part of them.
namespace argosy::test {
namespace {

/// Its matrices have 4096 elements or more: their moments may be codes.
spec::Architecture wide_shape() {
  spec::ModelConfig config =
      model_config({.width = 64, .ff = 96, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
  config.max_positions = 32;
  return spec::resolve(config, 23);
}

class CodedMoments : public testing::Test {
 protected:
  const spec::Architecture wide_ = wide_shape();
};

class OptimizersOnRanks : public OnRanks {
 protected:
  /// A rank of all that has taken two steps.
  [[nodiscard]] std::unique_ptr<Rank> trained(const Training& training, const spec::Architecture& shape) const {
    auto rank = std::make_unique<Rank>(shape, layout(), me(), *collectives_, training);
    for (std::uint64_t s = 0; s < 2; ++s) (void)rank->step(uneven_batches(shape, 4, s), 1e-3);
    return rank;
  }
  const spec::Architecture shape_ = small_shape();
  /// Without the biases of keys: their gradients are rounding errors, of which these optimizers make steps.
  const spec::Architecture unbiased_ = small_shape(0, true, false);
  const spec::Architecture wide_ = wide_shape();
};

Training with(optim::OptimizerType type) {
  Training training;
  training.optimizer.type = type;
  return training;
}
Training with(optim::StateType state) {
  Training training;
  training.optimizer.state = state;
  return training;
}
Training muon_in_bf16() {
  Training training = with(optim::OptimizerType::muon);
  training.type = at::kBFloat16;
  return training;
}
Training clipping() {
  Training training;
  training.optimizer.update_clip = 0.7;  // below the root mean squares of the first steps
  return training;
}
constexpr std::array stored_types{optim::StateType::bf16, optim::StateType::int8, optim::StateType::int4};

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
  const std::unique_ptr<Rank> shared = trained(training, shape_);
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

TEST_P(OptimizersOnRanks, CodedMomentsTrainAsOnOneRank) {
  for (std::size_t i = 0; i < all_schemes.size(); ++i) {
    const auto& [type, master] = all_types[i % all_types.size()];
    Training training = with(stored_types[i % stored_types.size()]);
    training.type = type;
    training.master = master;
    Rank alone{wide_, training};
    training.scheme = all_schemes[i];
    Rank shared = rank_of(wide_, training);
    const std::vector<double> initial = train_both(alone, shared, 3, 1e-3);
    // Gradients may differ in their last bit: where they are nothing else, as those of the biases of keys, Adam makes
    // steps of them, and a code may be the next one. Equal gradients give equal bits (unit.train).
    EXPECT_LT(distance(shared.weights(), alone.weights()), 0.02 * distance(initial, alone.weights()));
    EXPECT_LT(distance(state_of(shared, Of::all, me()), state_of(alone, Of::one)), 1e-2);
  }
}

/// Rows to copy of which every second piece is any other: the loss cannot fall below about 2.
data::Batch noisy_batch(const spec::Architecture& shape, std::uint64_t stream, std::int64_t count) {
  const Rows sources = copy_rows(shape, stream, count);
  Rows targets = sources;
  RandomStream random(6, stream);
  for (auto& row : targets) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      if (random.below(2) == 0)
        row[i] = static_cast<std::int32_t>(2 + random.below(static_cast<std::uint64_t>(shape.vocabulary.pieces) - 2));
  }
  std::vector<data::PairIds> examples;
  for (std::size_t i = 0; i < sources.size(); ++i) examples.push_back({.source = sources[i], .target = targets[i]});
  return data::batch_of_pairs(examples, shape.vocabulary);
}

/// On one rank: others would do the same.
TEST_F(CodedMoments, LoseAtMostOnePercentOfTheLoss) {
  if (world().size() > 1) return;
  constexpr int steps = 500;
  const data::Batch held_out = noisy_batch(wide_, 12345, 256);
  const auto trained_with = [&](const Training& training) {
    Rank rank{wide_, training};
    for (std::uint64_t s = 0; s < steps; ++s) (void)rank.step({noisy_batch(wide_, s, 16)}, 1e-3);
    return std::pair(rank.evaluate(held_out) / static_cast<double>(held_out.tgt_tokens), rank.weights());
  };
  const auto [loss, weights] = trained_with({});
  EXPECT_LT(loss, 2.5) << "of ln 21 = 3 at first";
  for (const optim::StateType stored : stored_types) {
    const auto [coded_loss, coded_weights] = trained_with(with(stored));
    EXPECT_LT(coded_loss, 1.01 * loss) << boost::describe::enum_to_string(stored, "");
    EXPECT_GT(distance(coded_weights, weights), 0) << "the moments are not in fp32";
  }
}

TEST_P(OptimizersOnRanks, ACheckpointBringsCodedMomentsToAnotherLayout) {
  for (const optim::StateType stored : stored_types) {
    const Training training = with(stored);
    const std::unique_ptr<Rank> shared = trained(training, wide_);
    const std::vector<double> saved = state_of(*shared, Of::all, me());
    RankStore store{GetParam()};
    const checkpoint::Reader whole = store.save(*shared), weights = store.save(*shared, checkpoint::Kind::export_);
    for (const auto& [reader, needed, written] : {std::tuple{&whole, 4, 4}, {&weights, 0, 3}}) {
      EXPECT_EQ(reader->manifest().at("min_reader").at("minor"), needed);
      EXPECT_EQ(reader->manifest().at("format_version").at("minor"), written);
      EXPECT_TRUE(reader->verify().finite);
    }
    Rank alone{wide_, training};
    load(alone, whole);
    EXPECT_EQ(state_of(alone, Of::one), saved);
    EXPECT_EQ(alone.weights(), shared->weights());
    // And back.
    Rank again = rank_of(wide_, training);
    load(again, whole, me());
    EXPECT_EQ(state_of(again, Of::all, me()), saved);
    // AdamW's moments in fp32 are not there.
    Rank adamw{wide_};
    EXPECT_THROW(load(adamw, whole), Error);
  }
}

TEST_P(OptimizersOnRanks, ClippedUpdatesTrainAsOnOneRank) {
  for (const Types& types : all_types) {
    Training training = clipping();
    training.type = types.weights;
    training.master = types.master;
    Rank alone{unbiased_, training}, unclipped{unbiased_, {.type = types.weights, .master = types.master}};
    training.scheme = plan::Scheme::stage_2;
    Rank shared = rank_of(unbiased_, training);
    const std::vector<double> initial = train_both(alone, shared, 3, 1e-3);
    for (int step = 0; step < 3; ++step) (void)unclipped.step(uneven_batches(unbiased_, 4, 1), 1e-3);
    const double change = distance(initial, alone.weights());
    EXPECT_LT(distance(shared.weights(), alone.weights()), (types.weights == at::kFloat ? 1e-4 : 0.1) * change);
    EXPECT_GT(distance(unclipped.weights(), alone.weights()), 0.2 * change);
  }
}

TEST_P(OptimizersOnRanks, EveryOptimizerHasTheSameBitsAtEveryStage) {
  for (const Training& each :
       {with(optim::OptimizerType::adafactor), with(optim::OptimizerType::muon), clipping(),
        with(optim::StateType::bf16), with(optim::StateType::int8), with(optim::StateType::int4), muon_in_bf16()}) {
    const auto trained_at = [&](plan::Scheme scheme) {
      Training training = each;
      training.scheme = scheme;
      Rank rank = rank_of(wide_, training);
      // One micro-batch a rank: sums in the same order at every stage.
      for (std::uint64_t s = 0; s < 3; ++s) (void)rank.step(uneven_batches(wide_, layout().world(), s), 1e-3);
      return rank.weights();
    };
    const std::vector<double> expected = trained_at(plan::Scheme::stage_1);
    for (const plan::Scheme scheme : {plan::Scheme::stage_2, plan::Scheme::stage_3, plan::Scheme::hybrid})
      EXPECT_EQ(trained_at(scheme), expected);
  }
}

TEST(Muon, MakesTheSingularValuesOfEachStackedMatrixNearOne) {
  Rank rank{small_shape(), with(optim::OptimizerType::muon)};
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
      const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(matrix.rows, matrix.columns)));
      const at::Tensor values = at::linalg_svdvals(applied.view({matrix.rows, matrix.columns})) / scale;
      EXPECT_LT(values.max().item<double>(), 1.3) << matrix.name;
      EXPECT_GT(values[values.numel() / 4].item<double>(), 0.6) << matrix.name << ": of few rows, so not of full rank";
      names.push_back(matrix.name);
    }
  }
  EXPECT_EQ(std::count(names.begin(), names.end(), "decoder/layer_1/self_attention/linear_0/weight/value"), 1);
}

TEST_P(OptimizersOnRanks, MuonTrainsAsOnOneRank) {
  for (const plan::Scheme scheme : all_schemes) {
    for (const auto& [type, master] : all_types) {
      SCOPED_TRACE(fmt::format("scheme {}, {}", static_cast<int>(scheme), at::toString(type)));
      Training training = with(optim::OptimizerType::muon);
      training.type = type;
      training.master = master;
      Rank alone{unbiased_, training};
      training.scheme = scheme;
      Rank shared = rank_of(unbiased_, training);
      const std::vector<double> initial = train_both(alone, shared, 3, 1e-2);
      const std::vector<double> one = alone.weights(), many = shared.weights();
      EXPECT_LT(largest_change(one, many), (type == at::kFloat ? 0.02 : 0.5) * largest_change(initial, one));
    }
  }
}

/// Of the same gradients.
TEST_P(OptimizersOnRanks, MuonInBf16HasTheSameBitsOnAnyRanksAndStepsNearThoseOfFp32) {
  const auto stepped = [](Rank& rank, int canonical_rank) {
    const std::vector<MadeMatrix> matrices = matrices_of(rank);
    int step = 0;
    rank.before_update = [&] { set_gradients(rank, matrices, canonical_rank, step); };
    for (step = 1; step <= 20; ++step) (void)rank.step({copy_batch(small_shape(), 1, 2)}, 1e-3);
    rank.before_update = {};
    return rank.weights();
  };
  Training training = with(optim::OptimizerType::muon);
  training.optimizer.max_grad_norm = 0;
  Rank wide{shape_, training};
  const std::vector<double> initial = wide.weights(), in_fp32 = stepped(wide, 0);
  training.type = at::kBFloat16;
  Rank alone{shape_, training};
  const std::vector<double> expected = stepped(alone, 0);
  const double away = distance(expected, in_fp32) / distance(initial, in_fp32);
  EXPECT_LT(away, bf16_bound);
  EXPECT_GT(away, 1e-4) << "the products are in fp32";
  for (const plan::Scheme scheme : all_schemes) {
    training.scheme = scheme;
    Rank shared = rank_of(shape_, training);
    EXPECT_EQ(stepped(shared, me()), expected) << static_cast<int>(scheme);
  }
}

TEST_P(OptimizersOnRanks, MuonSendsWhatThePlanSays) {
  for (const plan::Scheme scheme : all_schemes) {
    const auto collectives = comm::make_mpi_collectives(topology_);
    Training training = with(optim::OptimizerType::muon);
    training.scheme = scheme;
    Rank rank{shape_, layout(), me(), *collectives, training};
    (void)rank.step(uneven_batches(shape_, 2 * layout().world(), 1), 1e-3);
    const std::vector<double> sent = sent_by_rank(*collectives);
    EXPECT_EQ(*std::max_element(sent.begin(), sent.end()), static_cast<double>(rank.planned_bytes(2)));
  }
}

TEST_P(OptimizersOnRanks, ACheckpointBringsMuonToAnotherLayout) {
  const Training training = with(optim::OptimizerType::muon);
  const std::unique_ptr<Rank> shared = trained(training, shape_);
  const std::vector<double> saved = state_of(*shared, Of::all, me());
  RankStore store{GetParam()};
  const checkpoint::Reader whole = store.save(*shared);
  Rank alone{shape_, training};
  load(alone, whole);
  EXPECT_EQ(state_of(alone, Of::one), saved);
  EXPECT_EQ(alone.weights(), shared->weights());
}

INSTANTIATE_TEST_SUITE_P(Hierarchies, OptimizersOnRanks, testing::ValuesIn(hierarchies()), by_name);

}  // namespace
}  // namespace argosy::test
