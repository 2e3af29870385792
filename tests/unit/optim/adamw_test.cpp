#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.hpp"
#include "optim/optimizer.hpp"
#include "partition/reshard.hpp"

namespace argosy::test {
namespace {

using partition::FlatSpace, partition::Layout;

/// The update as the paper writes it, one element at a time, in fp64, but for the factor of the decay: PyTorch and we
/// multiply by it in fp32, and its rounding would add up over the steps.
struct Reference {
  std::vector<double> x, m, v;
  void update(const std::vector<float>& gradient, double coefficient, const optim::AdamwNumbers& numbers, double lr,
              int t, std::size_t decay_begin) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double g = gradient[i] * coefficient;
      if (i >= decay_begin) x[i] *= static_cast<float>(1 - lr * numbers.weight_decay);
      m[i] = numbers.beta1 * m[i] + (1 - numbers.beta1) * g;
      v[i] = numbers.beta2 * v[i] + (1 - numbers.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(numbers.beta1, t)), v_hat = v[i] / (1 - std::pow(numbers.beta2, t));
      x[i] -= lr * m_hat / (std::sqrt(v_hat) + numbers.epsilon);
    }
  }
};

std::vector<float> normal(std::size_t n, std::uint64_t stream) {
  RandomStream random(7, stream);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

at::Tensor tensor_of(const std::vector<float>& values) { return at::tensor(values, at::kFloat); }
at::Tensor zeros(std::int64_t n, at::ScalarType type = at::kFloat) { return at::zeros({n}, type); }

const std::vector<partition::ParamSpec> params{{"weight", {37, 41}, true}, {"bias", {300}, false}};
const optim::AdamwNumbers numbers{.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-3, .weight_decay = 0.1};

void update(const std::vector<optim::Piece>& pieces, const optim::AdamwNumbers& with, double lr, std::int64_t t,
            const at::Tensor& coefficient) {
  optim::make_adamw(with)->update(pieces, {}, {.lr = lr, .number = t, .coefficient = coefficient});
}

/// In fp32, without moments and gradient so far.
optim::ShardState fresh_shard(const std::vector<float>& start) {
  const std::int64_t n = std::ssize(start);
  optim::ShardState shard;
  shard.master = tensor_of(start);
  shard.states = {{zeros(n)}, {zeros(n)}};
  shard.gradient = zeros(n);
  return shard;
}

TEST(AdamW, EqualsTheFormulaOverAHundredSteps) {
  const FlatSpace space(params, Layout{});
  const auto n = static_cast<std::size_t>(space.padded_size());
  const std::vector<float> start = normal(n, 0);
  const optim::ShardState shard = fresh_shard(start);
  const auto pieces = optim::pieces_of(space, 0, shard);
  ASSERT_EQ(pieces.size(), 2U);
  Reference reference{{start.begin(), start.end()}, std::vector<double>(n), std::vector<double>(n)};
  for (int t = 1; t <= 100; ++t) {
    const std::vector<float> gradient = normal(n, static_cast<std::uint64_t>(t));
    shard.gradient.copy_(tensor_of(gradient));
    const float coefficient = t % 3 == 0 ? 0.25F : 1.0F;
    update(pieces, numbers, 1e-3, t, at::tensor({coefficient}));
    reference.update(gradient, coefficient, numbers, 1e-3, t, static_cast<std::size_t>(space.decay_begin()));
  }
  double error = 0, size = 0;
  for (std::size_t i = 0; i < n; ++i) {
    error += std::pow(shard.master.data_ptr<float>()[i] - reference.x[i], 2);
    size += reference.x[i] * reference.x[i];
  }
  EXPECT_LT(std::sqrt(error / size), 1e-6);
}

/// StableAdamW of two matrices that one parameter stacks and of a bias, in fp64 but for the factor of the decay.
TEST(AdamW, ClipsUpdatesOfEachMatrixByTheFormula) {
  const spec::Unit unit{
      .name = "unit",
      .parameters = {{{"stacked", {40, 24}, true}, spec::Role::ffn_in, {}, {{"gate", 20}, {"up", 20}}},
                     {{"bias", {300}, false}, spec::Role::linear_bias}}};
  const FlatSpace space(unit.flat(), Layout{});
  const optim::Statistics statistics = optim::statistics_of(unit, space, 0, optim::state_of({}), at::kFloat);
  ASSERT_EQ(statistics.matrices.size(), 3U);
  const auto n = static_cast<std::size_t>(space.padded_size());
  const std::vector<float> start = normal(n, 0);
  const optim::ShardState shard = fresh_shard(start);
  const auto pieces = optim::pieces_of(space, 0, shard);
  optim::AdamwNumbers with = numbers;
  with.update_clip = 0.8;
  std::vector<double> x{start.begin(), start.end()}, m(n), v(n);
  int clipped = 0;
  for (int t = 1; t <= 100; ++t) {
    std::vector<float> gradient = normal(n, static_cast<std::uint64_t>(t));
    for (float& g : gradient) g *= t % 10 == 0 ? 20.0F : 1.0F;
    shard.gradient.copy_(tensor_of(gradient));
    const double coefficient = t % 3 == 0 ? 0.25 : 1, lr = 1e-3;
    optim::make_adamw(with)->update(pieces, statistics,
                                    {.lr = lr,
                                     .number = t,
                                     .coefficient = at::tensor({static_cast<float>(coefficient)}),
                                     .sum = [](std::span<double> /*alone*/) {}});
    for (const auto& [begin, rows, columns] : statistics.matrices) {
      double sum = 0;
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(begin + rows * columns); ++i) {
        const double g = gradient[i] * coefficient;
        m[i] = with.beta1 * m[i] + (1 - with.beta1) * g;
        v[i] = with.beta2 * v[i] + (1 - with.beta2) * g * g;
        sum += g * g / std::max(v[i] / (1 - std::pow(with.beta2, t)), with.epsilon * with.epsilon);
      }
      const double rms = std::sqrt(sum / static_cast<double>(rows * columns)), rate = lr / std::max(1.0, rms / 0.8);
      clipped += rate < lr ? 1 : 0;
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(begin + rows * columns); ++i) {
        if (begin >= space.decay_begin()) x[i] *= static_cast<float>(1 - rate * with.weight_decay);
        x[i] -= rate * m[i] / (1 - std::pow(with.beta1, t)) /
                (std::sqrt(v[i] / (1 - std::pow(with.beta2, t))) + with.epsilon);
      }
    }
  }
  EXPECT_GT(clipped, 30);
  EXPECT_LT(clipped, 300) << "always";
  double error = 0, size = 0;
  for (const auto& [begin, rows, columns] : statistics.matrices) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(begin + rows * columns); ++i) {
      error += std::pow(shard.master.data_ptr<float>()[i] - x[i], 2);
      size += x[i] * x[i];
    }
  }
  EXPECT_LT(std::sqrt(error / size), 1e-6);
}

TEST(Ema, FollowsTheWeightsAndForgetsTheFirstOnesSoon) {
  const FlatSpace space(params, Layout{});
  optim::ShardState shard;
  shard.states.resize(2);
  for (at::Tensor* tensor :
       {&shard.master, &shard.states[0].numbers, &shard.states[1].numbers, &shard.gradient, &shard.ema})
    *tensor = zeros(space.padded_size());
  const auto pieces = optim::pieces_of(space, 0, shard);
  optim::AdamwNumbers with = numbers;
  with.ema = 0.6;
  std::vector<double> mean(static_cast<std::size_t>(space.padded_size()));
  for (int t = 1; t <= 30; ++t) {
    const at::Tensor before = shard.ema.clone();
    shard.gradient.copy_(tensor_of(normal(mean.size(), static_cast<std::uint64_t>(t))));
    if (t % 7 == 0) {
      update(pieces, with, 1e-2, t, at::tensor({-1.0F}));  // skipped
      EXPECT_TRUE(shard.ema.equal(before));
      continue;
    }
    update(pieces, with, 1e-2, t, at::tensor({1.0F}));
    const double decay = t < 13 ? (t + 1.0) / (t + 10.0) : 0.6;  // they meet at 12.5
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] = decay * mean[i] + (1 - decay) * shard.master.data_ptr<float>()[i];
      ASSERT_NEAR(shard.ema.data_ptr<float>()[i], mean[i], 1e-6) << t;
    }
  }
}

/// A unit after one update of every rank's shard. master: fp32 or bf16; separate: weights lie next to it; ema: instead
/// of the weights, their running mean.
at::Tensor updated(const Layout& layout, at::ScalarType master, bool separate, const optim::RoundingNames& names = {},
                   bool ema = false) {
  const FlatSpace space(params, layout);
  const std::vector<float> start = normal(2304, 0), gradient = normal(2304, 1);
  at::Tensor flat = zeros(space.padded_size(), master), slope = zeros(space.padded_size());
  flat.narrow(0, 0, 2048).copy_(tensor_of(start).narrow(0, 0, 2048));
  slope.narrow(0, 0, 2048).copy_(tensor_of(gradient).narrow(0, 0, 2048));
  at::Tensor means = slope.clone();  // any
  optim::AdamwNumbers with = numbers;
  if (ema) with.ema = 0.9;
  for (int rank = 0; rank < layout.world(); ++rank) {
    const auto gather = [&](const at::Tensor& of) {
      at::Tensor shard = at::zeros({space.owned_size(rank)}, of.options());
      for (std::int64_t local = 0; const int slice : space.owned_slices(rank)) {
        shard.narrow(0, local, space.slice_size()).copy_(of.narrow(0, space.slice_begin(slice), space.slice_size()));
        local += space.slice_size();
      }
      return shard;
    };
    const bool in_place = !separate && space.owned_slices(rank).size() == 1;
    optim::ShardState shard;
    shard.master =
        in_place ? flat.narrow(0, space.slice_begin(space.owned_slices(rank)[0]), space.slice_size()) : gather(flat);
    shard.rounding = names;
    shard.states = {{zeros(space.owned_size(rank))}, {zeros(space.owned_size(rank))}};
    shard.gradient = gather(slope);
    if (!in_place) shard.weights = flat;
    if (ema) shard.ema = gather(means);
    update(optim::pieces_of(space, rank, shard), with, 1e-2, 1, at::tensor({1.0F}));
    if (!ema) continue;
    for (std::int64_t local = 0; const int slice : space.owned_slices(rank)) {
      means.narrow(0, space.slice_begin(slice), space.slice_size())
          .copy_(shard.ema.narrow(0, local, space.slice_size()));
      local += space.slice_size();
    }
  }
  if (ema) return means.narrow(0, 0, space.used_size());
  return flat.narrow(0, 0, space.used_size()).clone();
}

TEST(AdamW, ShardsOfAnyLayoutMakeTheSameWhole) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor expected = updated(Layout{}, type, false, {.seed = 3, .first_parameter = 5});
    EXPECT_FALSE(expected.equal(tensor_of(normal(2304, 0)).narrow(0, 0, expected.numel()).to(type)));
    for (const std::vector<int>& nodes : {std::vector{2}, {3}, {1, 2}, {2, 3}, {2, 1, 1}}) {
      for (const bool separate : {false, true})
        EXPECT_TRUE(updated(Layout(nodes), type, separate, {.seed = 3, .first_parameter = 5}).equal(expected))
            << nodes.size() << " nodes";
    }
  }
  const at::Tensor mean = updated(Layout{}, at::kFloat, false, {}, true);
  for (const std::vector<int>& nodes : {std::vector{2}, {1, 2}, {2, 1, 1}})
    EXPECT_TRUE(updated(Layout(nodes), at::kFloat, true, {}, true).equal(mean)) << nodes.size() << " nodes";
}

TEST(AdamW, WeightsWithoutMasterRoundByTheirNames) {
  const auto weights = [](std::uint64_t seed, std::int64_t first) {
    return updated(Layout({3}), at::kBFloat16, false, {.seed = seed, .first_parameter = first});
  };
  const at::Tensor expected = weights(3, 5), wide = updated(Layout{}, at::kFloat, false);
  EXPECT_FALSE(weights(4, 5).equal(expected));
  EXPECT_FALSE(weights(3, 6).equal(expected));
  EXPECT_TRUE(weights(3, 5).equal(expected));
  // From the same update in fp32: half a step of bf16, as the first weights were rounded, and one more.
  const at::Tensor gap = (expected.to(at::kFloat) - wide).abs(), bound = wide.abs() * (1.5 * 0x1p-7) + 1e-4;
  EXPECT_EQ(gap.gt(bound).sum().item<std::int64_t>(), 0);
  EXPECT_GT(gap.gt(0).sum().item<std::int64_t>(), 1000);
}

TEST(AdamW, MatricesDecayAndNothingElseDoes) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const FlatSpace space(
        {{"first", {64, 8}, true}, {"bias", {300}, false}, {"second", {8, 64}, true}, {"norm", {64}, false}},
        Layout({2}));
    for (int rank = 0; rank < 2; ++rank) {
      optim::ShardState shard;
      shard.master = at::full({space.owned_size(rank)}, 1.0, type);
      shard.states = {{zeros(space.owned_size(rank))}, {zeros(space.owned_size(rank))}};
      shard.gradient = zeros(space.owned_size(rank));
      update(optim::pieces_of(space, rank, shard), numbers, 5.0, 1, at::tensor({1.0F}));  // decays by a half
      for (const partition::Interval& own : partition::intervals_of(space, rank)) {
        const at::Tensor part = shard.master.narrow(0, own.local_offset, own.end - own.begin);
        EXPECT_TRUE(part.eq(space.params()[own.param].decay ? 0.5 : 1.0).all().item<bool>())
            << space.params()[own.param].name;
      }
    }
  }
}

TEST(AdamW, NormOfShardsAddsUp) {
  const FlatSpace space(params, Layout{});
  optim::ShardState shard;
  shard.master = zeros(space.padded_size());
  shard.gradient = tensor_of(normal(static_cast<std::size_t>(space.padded_size()), 3));
  double expected = 0;
  for (std::int64_t i = 0; i < space.padded_size(); ++i) expected += std::pow(shard.gradient.data_ptr<float>()[i], 2);
  EXPECT_NEAR(optim::sum_of_squares(optim::pieces_of(space, 0, shard)), expected, 1e-9 * expected);
}

}  // namespace
}  // namespace argosy::test
