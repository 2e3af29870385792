#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <set>

#include "core/random.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "unit/kernels/compare.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

class Rows : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type = GetParam();
};

TEST_P(Rows, NormEqualsPlain) {
  for (const bool rms : {false, true}) {
    const at::Tensor x = values({131, 50}, type) * 3 + 0.5, dy = values({131, 50}, type, 2),
                     add = values({131, 50}, type, 3);
    const at::Tensor weight = values({50}, type, 4);
    const OptionalTensor bias = rms ? std::nullopt : OptionalTensor(values({50}, type, 5));
    const auto [y, mean, rstd] = norm(x, weight, bias, 1e-5, rms);
    const auto [y2, mean2, rstd2] = plain::norm(x, weight, bias, 1e-5, rms);
    EXPECT_LT(distance(y, y2), tolerance(type));
    EXPECT_LT(distance(rstd, rstd2), 1e-5);
    for (const bool accumulate : {false, true}) {
      const at::Tensor dweight = accumulate ? values({50}) : poisoned({50}),
                       dbias = accumulate ? values({50}) : poisoned({50});
      const at::Tensor dweight2 = dweight.clone(), dbias2 = dbias.clone();
      const auto optional_dbias = [&](const at::Tensor& t) { return rms ? std::nullopt : OptionalTensor(t); };
      const at::Tensor dx =
          norm_backward(dy, x, weight, mean, rstd, add, dweight, optional_dbias(dbias), accumulate, rms);
      const at::Tensor dx2 =
          plain::norm_backward(dy, x, weight, mean2, rstd2, add, dweight2, optional_dbias(dbias2), accumulate, rms);
      EXPECT_LT(distance(dx, dx2), tolerance(type));
      EXPECT_LT(distance(dweight, dweight2), 1e-3);
      if (!rms) {
        EXPECT_LT(distance(dbias, dbias2), 1e-3);
      }
    }
  }
}

TEST_P(Rows, DropoutDrawsTheMaskOfTheReference) {
  const DropoutKey key{0x123456789abcdefULL, 7, 3, 21};
  for (const std::int64_t n : {1, 127, 128, 5003, 1 << 18}) {  // in the last, some draws equal the threshold
    const at::Tensor branch = values({n}, type), base = values({n}, type, 2);
    EXPECT_TRUE(
        at::equal(dropout_add(std::nullopt, branch, 0.1, key), plain::dropout_add(std::nullopt, branch, 0.1, key, {})));
    EXPECT_LT(distance(dropout_add(base, branch, 0.1, key), plain::dropout_add(base, branch, 0.1, key, {})),
              tolerance(type, 1e-6));
    EXPECT_TRUE(at::equal(dropout_add(base, branch, 0, key), base + branch));
  }
  for (const std::int64_t width : {5, 32, 50, 192}) {
    const at::Tensor branch = values({31, width}, type), base = values({31, width}, type, 2),
                     bias = values({width}, type, 3);
    for (const double p : {0.0, 0.1})
      EXPECT_LT(distance(dropout_add(base, branch, p, key, bias), plain::dropout_add(base, branch, p, key, bias)),
                tolerance(type, 1e-6))
          << width;
  }
}

TEST_P(Rows, DropoutKeepsItsShareAndEachPartOfTheKeyCounts) {
  const at::Tensor ones = at::ones({1 << 16}, type);
  const DropoutKey key{5, 6, 7, 8};
  const auto mask = [&](const DropoutKey& k) { return dropout_add(std::nullopt, ones, 0.25, k).gt(0); };
  const at::Tensor first = mask(key);
  EXPECT_NEAR(first.to(at::kDouble).mean().item<double>(), 0.75, 4 * std::sqrt(0.75 * 0.25 / (1 << 16)));
  for (const DropoutKey& other : {DropoutKey{4, 6, 7, 8}, DropoutKey{5 + (1ULL << 32), 6, 7, 8}, DropoutKey{5, 5, 7, 8},
                                  DropoutKey{5, 6, 6, 8}, DropoutKey{5, 6, 7, 9}}) {
    EXPECT_NEAR(mask(other).eq(first).to(at::kDouble).mean().item<double>(), 0.625, 0.01);  // independent masks
  }
}

TEST_P(Rows, NoiseIsThatOfTheReference) {
  for (const auto& [rows, width] : {std::pair{1, 1}, {3, 50}, {131, 50}, {7, 128}, {2, 300}}) {
    const at::Tensor x = values({rows, width}, type), scales = values({rows}, at::kFloat, 2);
    at::Tensor got = x.clone(), expected = x.clone();
    add_noise_(got, scales, {0x123456789abcdefULL, 7, 3, 21});
    plain::add_noise_(expected, scales, {0x123456789abcdefULL, 7, 3, 21});
    EXPECT_LT(distance(got, expected), tolerance(type, 1e-6)) << width;
    EXPECT_FALSE(at::equal(got, x));
  }
}

TEST_P(Rows, ActivationsEqualPlain) {
  for (const auto kind : {spec::Activation::relu, spec::Activation::swish, spec::Activation::gelu,
                          spec::Activation::swiglu, spec::Activation::geglu}) {
    const std::int64_t in = spec::is_gated(kind) ? 58 : 29;
    at::Tensor u = values({70, in}, type) * 4, y = at::empty({70, 29}, u.options());
    at::Tensor u2 = u.clone(), y2 = y.clone();
    const at::Tensor bias = values({in}, type, 2), dy = values({70, 29}, type, 3);
    activation(u, bias, y, kind);
    plain::activation(u2, bias, y2, kind);
    EXPECT_LT(distance(y, y2), tolerance(type)) << static_cast<int>(kind);
    const at::Tensor& saved = kind == spec::Activation::relu ? y2 : u2;
    const at::Tensor dbias = poisoned({in}), dbias2 = poisoned({in});
    const at::Tensor du = activation_backward(dy, saved, kind, dbias, false);
    const at::Tensor du2 = plain::activation_backward(dy, saved, kind, dbias2, false, {});
    EXPECT_LT(distance(du, du2), tolerance(type, 3e-4)) << static_cast<int>(kind);
    EXPECT_LT(distance(dbias, dbias2), tolerance(type, 3e-4)) << static_cast<int>(kind);
    if (kind == spec::Activation::relu) continue;  // what it saves is what it gave
    const at::Tensor again = at::empty_like(y), again2 = at::empty_like(y);
    EXPECT_TRUE(at::equal(activation_backward(dy, u, kind, std::nullopt, false, again),
                          activation_backward(dy, u, kind, std::nullopt, false)));
    EXPECT_TRUE(at::equal(again, y)) << static_cast<int>(kind);
    (void)plain::activation_backward(dy, u2, kind, std::nullopt, false, again2);
    EXPECT_TRUE(at::equal(again2, y2)) << static_cast<int>(kind);
  }
}

TEST_P(Rows, EmbeddingEqualsPlainBothWays) {
  const at::Tensor ids = at::tensor({4, 1, 4, 0, 9, 4, 2, 9}, at::kLong).view({2, 4}), table = values({10, 24}, type);
  const at::Tensor waves = sinusoids(16, 24), positions = at::tensor({0, 1, 0, 1, 5, 6, 7, 15}, at::kLong).view({2, 4});
  for (const OptionalTensor& place : {OptionalTensor(), OptionalTensor(positions)})
    EXPECT_LT(distance(embedding(ids, table, 4.9, waves, place, 3), plain::embedding(ids, table, 4.9, waves, place, 3)),
              tolerance(type, 1e-6));
  const at::Tensor dx = values({2, 4, 24}, type, 2);
  for (const bool accumulate : {false, true}) {
    at::Tensor got = accumulate ? values({10, 24}) : poisoned({10, 24}), expected = got.clone();
    embedding_backward(dx, ids, 4.9, got, accumulate, 9);
    plain::embedding_backward(dx, ids, 4.9, expected, accumulate, 9);
    EXPECT_LT(distance(got, expected), 1e-6);
    EXPECT_EQ(got[9].equal(values({10, 24})[9]), accumulate);  // the skipped row
  }
}

TEST_P(Rows, ColumnSumEqualsPlainAndDoesNotDependOnThreads) {
  const at::Tensor x = values({1003, 37}, type);
  at::Tensor sum = poisoned({37}), expected = poisoned({37});
  column_sum(x, sum, false);
  plain::column_sum(x, expected, false);
  EXPECT_LT(distance(sum, expected), 1e-5);
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 3 : 1);
  at::Tensor again = poisoned({37});
  column_sum(x, again, false);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(sum, again));
}

INSTANTIATE_TEST_SUITE_P(Types, Rows, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

TEST(Noise, ByHand) {
  at::Tensor x = at::ones({3, 64});
  add_noise_(x, at::tensor({0.5F, 0.0F, 2.0F}), {5 + (6ULL << 32), 7, 8, 9});
  const auto block = [](std::uint32_t number) { return philox({5, 6}, {number, 9, 7, 8}); };
  const auto uniform = [](std::uint32_t half) { return (2.0 * half + 1) / 65536 - 1; };
  EXPECT_FLOAT_EQ(x[0][0].item<float>(), static_cast<float>(1 + 0.5 * uniform(block(0)[0] & 0xffff)));
  EXPECT_FLOAT_EQ(x[0][16].item<float>(), static_cast<float>(1 + 0.5 * uniform(block(0)[0] >> 16)));
  EXPECT_FLOAT_EQ(x[0][33].item<float>(), static_cast<float>(1 + 0.5 * uniform(block(1)[1] & 0xffff)));
  EXPECT_FLOAT_EQ(x[2][2].item<float>(), static_cast<float>(1 + 2 * uniform(block(18)[0] & 0xffff))) << "element 130";
  EXPECT_TRUE(at::equal(x[1], at::ones({64})));
}

TEST(Noise, IsUniformAndEachPartOfTheKeyCounts) {
  constexpr std::int64_t n = 1 << 16;
  const auto noise = [](const DropoutKey& key) {
    at::Tensor x = at::zeros({n / 64, 64});
    add_noise_(x, at::ones({n / 64}), key);
    return x.to(at::kDouble);
  };
  const at::Tensor first = noise({5, 6, 7, 8});
  EXPECT_LT(first.abs().max().item<double>(), 1);
  EXPECT_NEAR(first.mean().item<double>(), 0, 4 * std::sqrt(1.0 / 3 / n));
  EXPECT_NEAR(first.square().mean().item<double>(), 1.0 / 3, 4 * std::sqrt(4.0 / 45 / n));
  for (const DropoutKey& other : {DropoutKey{4, 6, 7, 8}, DropoutKey{5 + (1ULL << 32), 6, 7, 8}, DropoutKey{5, 5, 7, 8},
                                  DropoutKey{5, 6, 6, 8}, DropoutKey{5, 6, 7, 9}})
    EXPECT_NEAR((first * noise(other)).mean().item<double>(), 0, 4 * std::sqrt(1.0 / 9 / n)) << "independent";
}

TEST(Norm, EpsilonStandsUnderTheRoot) {
  const at::Tensor x = at::tensor({-1e-3F, 1e-3F}).view({1, 2}), weight = at::tensor({2.0F, 3.0F});
  const double rstd = 1 / std::sqrt(1e-6 + 1e-5);
  for (const bool rms : {false, true}) {
    const auto [y, mean, r] = norm(x, weight, std::nullopt, 1e-5, rms);
    EXPECT_NEAR(r.item<double>(), rstd, 1e-5 * rstd);
    EXPECT_NEAR(y[0][0].item<double>(), -2e-3 * rstd, 1e-6);
    EXPECT_NEAR(y[0][1].item<double>(), 3e-3 * rstd, 1e-6);
  }
}

TEST(Activation, ValuesAndSlopesByHand) {
  // at 1: Φ(1) = .8413447, φ(1) = .2419707, σ(1) = .7310586; swiglu with up 3
  const double big = 0.8413447460685429, density = 0.24197072451914337, s = 0.7310585786300049;
  const auto check = [](spec::Activation kind, const std::vector<float>& in, double value, std::vector<double> slope) {
    at::Tensor u = at::tensor(in).view({1, -1}), y = at::empty({1, 1});
    activation(u, std::nullopt, y, kind);
    EXPECT_NEAR(y.item<double>(), value, 1e-6) << static_cast<int>(kind);
    const at::Tensor du = activation_backward(at::ones({1, 1}), u, kind, std::nullopt, false);
    for (std::size_t i = 0; i < slope.size(); ++i)
      EXPECT_NEAR(du[0][static_cast<std::int64_t>(i)].item<double>(), slope[i], 1e-6) << static_cast<int>(kind);
  };
  check(spec::Activation::gelu, {1}, big, {big + density});
  check(spec::Activation::swish, {1}, s, {s * (2 - s)});
  check(spec::Activation::swiglu, {1, 3}, 3 * s, {3 * s * (2 - s), s});
  // gelu by tanh at 1: .5(1 + tanh(.7978846·1.044715)) = .8411920, and its slope
  const double t = std::tanh(0.7978845608028654 * 1.044715), tanh_gelu = (1 + t) / 2,
               slope = tanh_gelu + (1 - t * t) / 2 * 0.7978845608028654 * (1 + 3 * 0.044715);
  EXPECT_NEAR(tanh_gelu, 0.8411920, 1e-7);
  check(spec::Activation::geglu, {1, 3}, 3 * tanh_gelu, {3 * slope, tanh_gelu});
}

TEST(Sinusoids, HalfSplitAndExact) {
  const at::Tensor table = sinusoids(101, 512);
  EXPECT_FLOAT_EQ(table[100][3].item<float>(), static_cast<float>(std::sin(100 * std::pow(10000.0, -6.0 / 512))));
  EXPECT_FLOAT_EQ(table[100][259].item<float>(), static_cast<float>(std::cos(100 * std::pow(10000.0, -6.0 / 512))));
  EXPECT_EQ(table[0][256].item<float>(), 1.0F);
}

TEST(Sinusoids, ThoseOfFairseqBeginAtTwoAndEndAtTheLastRate) {
  const at::Tensor table = sinusoids(101, 512, spec::Position::sinusoidal_fairseq);
  EXPECT_FLOAT_EQ(table[0][0].item<float>(), static_cast<float>(std::sin(2)));
  EXPECT_FLOAT_EQ(table[100][255].item<float>(), static_cast<float>(std::sin(102 * 1e-4)));
  EXPECT_FLOAT_EQ(table[100][256 + 3].item<float>(), static_cast<float>(std::cos(102 * std::pow(10000.0, -3.0 / 255))));
}

TEST(Adamw, EqualsPlainOverSteps) {
  at::Tensor master = values({1037}), m = at::zeros({1037}), v = at::zeros({1037}), weights = master.to(at::kBFloat16);
  at::Tensor master2 = master.clone(), m2 = m.clone(), v2 = v.clone(), weights2 = weights.clone();
  for (std::int64_t step = 1; step <= 5; ++step) {
    const at::Tensor gradient = values({1037}, at::kFloat, static_cast<double>(step)), clip = at::tensor({0.3F});
    const AdamwOptions o{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-3, .weight_decay = 0.1, .step = step};
    adamw_(master, m, v, gradient, weights, clip, o);
    plain::adamw_(master2, m2, v2, gradient, weights2, clip, o);
  }
  EXPECT_LT(distance(master, master2), 1e-6);
  EXPECT_LT(distance(v, v2), 1e-6);
  EXPECT_TRUE(at::equal(weights, master.to(at::kBFloat16)));
  const at::Tensor before = master.clone(), moment = m.clone();
  adamw_(master, m, v, values({1037}), weights, at::tensor({-1.0F}), {.lr = 1, .step = 6});
  EXPECT_TRUE(at::equal(master, before));
  EXPECT_TRUE(at::equal(m, moment));
}

TEST(Adamw, FirstStepByHandAndWeightsRoundToEven) {
  // After one step m̂ = g and v̂ = g², whatever the betas: x·(1 - lr·decay) - lr·g/(|g| + ε).
  at::Tensor x = at::tensor({2.0F, -1.0F}), m = at::zeros({2}), v = at::zeros({2});
  adamw_(x, m, v, at::tensor({4e-3F, -2e-3F}), std::nullopt, at::tensor({0.5F}),
         {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-3, .weight_decay = 0.2, .step = 1});
  EXPECT_NEAR(x[0].item<double>(), 2 * 0.98 - 0.1 * 2.0 / 3, 1e-6);
  EXPECT_NEAR(x[1].item<double>(), -0.98 + 0.1 * 1.0 / 2, 1e-6);
  // halfway between neighbours in bf16
  at::Tensor half = at::tensor({1 + 0x1p-8F, 1 + 3 * 0x1p-8F}), weights = at::zeros({2}, at::kBFloat16);
  adamw_(half, m, v, at::zeros({2}), weights, at::ones({1}), {.lr = 0, .step = 2});
  EXPECT_EQ(weights[0].item<float>(), 1.0F);
  EXPECT_EQ(weights[1].item<float>(), 1 + 0x1p-6F);
}

TEST(Ema, MovesByItsShareAndEqualsPlain) {
  at::Tensor mean = values({1037}), plain_mean = mean.clone();
  const at::Tensor before = mean.clone(), weights = values({1037}, at::kFloat, 5);
  ema_(mean, weights, at::tensor({0.5F}), 0.75);
  plain::ema_(plain_mean, weights, at::tensor({0.5F}), 0.75);
  EXPECT_LT(distance(mean, 0.75 * before + 0.25 * weights), 1e-6);
  EXPECT_LT(distance(mean, plain_mean), 1e-6);
  at::Tensor skipped = mean.clone();
  ema_(skipped, weights, at::tensor({-1.0F}), 0.75);
  EXPECT_TRUE(at::equal(skipped, mean));
  plain::ema_(skipped, weights, at::tensor({-1.0F}), 0.75);
  EXPECT_TRUE(at::equal(skipped, mean));
}

TEST(SumOfSquares, IsExactInDoubleAndDoesNotDependOnThreads) {
  const int before = at::get_num_threads();
  for (const std::int64_t count : {0, 1000, 65536, 200001}) {
    const at::Tensor x = values({count});
    const double expected = x.to(at::kDouble).square().sum().item<double>();
    std::set<double> sums;
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      sums.insert(sum_of_squares(x).item<double>());
    }
    EXPECT_EQ(sums.size(), 1U) << count;
    EXPECT_NEAR(*sums.begin(), expected, 1e-12 * expected) << count;
    EXPECT_NEAR(plain::sum_of_squares(x).item<double>(), expected, 1e-12 * expected) << count;
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace argosy::test
