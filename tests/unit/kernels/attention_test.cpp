#include "kernels/attention.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>

#include <array>

#include "kernels/position_bias.hpp"
#include "spec/gpu_attention.hpp"
#include "unit/kernels/compare.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

struct Case {
  const char* name;
  std::int64_t queries, keys, heads, kv_heads, size;
  bool causal, lengths, segments;
  std::int64_t window;
  bool bias = false, prompts = false;
};

const Case gradient_cases[] = {
    {"ShortCross", 7, 5, 4, 4, 12, false, true, false, 0},
    {"CausalSquare", 15, 15, 4, 4, 48, true, false, false, 0},
    {"GroupedWindow", 40, 40, 6, 2, 16, true, false, false, 9},
    {"LongBlocked", 83, 83, 2, 1, 20, true, false, false, 0},
    {"Packed", 37, 37, 2, 2, 8, true, false, true, 0},
    {"LongWindow", 300, 300, 2, 1, 20, true, false, false, 70},
    {"LongPacked", 130, 130, 2, 1, 8, true, false, true, 0},
    {"PackedWindow", 130, 130, 2, 2, 8, true, false, true, 4},
    {"LongCross", 70, 200, 2, 2, 16, false, true, false, 0},
    {"CachedBlock", 40, 150, 2, 1, 16, true, false, false, 60},
    {"CachedQuery", 1, 19, 4, 2, 16, true, false, false, 0},
    {"BiasEncoder", 37, 37, 4, 4, 12, false, true, false, 0, true},
    {"BiasGrouped", 83, 83, 6, 2, 20, true, false, false, 0, true},
    {"BiasPackedWindow", 130, 130, 2, 1, 8, true, false, true, 4, true},
    {"BiasCachedBlock", 40, 150, 2, 1, 16, true, false, false, 60, true},
    {"BiasCachedQuery", 1, 19, 4, 2, 16, true, false, false, 0, true},
    {"BiasLong", 300, 300, 2, 1, 20, true, false, false, 0, true},
    {"Prompts", 37, 37, 6, 2, 20, true, false, false, 0, false, true},
    {"PromptsLong", 300, 300, 2, 1, 20, true, false, false, 0, false, true},
    {"PromptsPacked", 130, 130, 2, 1, 8, true, false, true, 0, false, true},
    {"PromptsWindow", 130, 130, 4, 2, 8, true, false, false, 40, false, true},
    {"PromptsBiasPackedWindow", 130, 130, 2, 1, 8, true, false, true, 4, true, true},
};

/// Several threads, for which rows are cut.
class Attention : public testing::TestWithParam<std::tuple<Case, at::ScalarType, int>> {
 protected:
  void SetUp() override { at::set_num_threads(std::get<2>(GetParam())); }
  void TearDown() override { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

TEST_P(Attention, EqualsPlainBothWays) {
  const auto& [c, type, threads] = GetParam();
  const std::int64_t rows = 3;
  // packed as a block has it: q, k, v side by side
  const auto heads = [&](std::int64_t positions, double phase) {
    return values({rows, positions, c.heads + 2 * c.kv_heads, c.size}, type, phase);
  };
  const at::Tensor qs = heads(c.queries, 1), kvs = heads(c.keys, 2),
                   dout = values({rows, c.queries, c.heads, c.size}, type, 3);
  const at::Tensor q = qs.narrow(2, 0, c.heads) * 2, k = kvs.narrow(2, c.heads, c.kv_heads),
                   v = kvs.narrow(2, c.heads + c.kv_heads, c.kv_heads);
  AttentionMask mask{.key_lengths = {}, .segments = {}, .causal = c.causal, .window = c.window};
  if (c.lengths) mask.key_lengths = at::tensor({c.keys, std::int64_t{1}, c.keys - 2}, at::kLong);
  if (c.segments) mask.segments = (at::arange(c.keys) / 10).to(at::kLong).repeat({rows, 1});
  if (c.bias) mask.bias = values({c.heads, c.queries + c.keys - 1}, at::kFloat, 4);
  if (c.prompts) {  // of documents of 10 positions, the first 6; otherwise of the row, all but 7
    const at::Tensor place = at::arange(c.keys, at::kLong);
    const at::Tensor end = c.segments ? place.floor_divide(10) * 10 + 6 : at::full_like(place, c.keys - 7);
    mask.prompts = end.masked_fill(place.ge(end), 0).repeat({rows, 1});
  }
  const double scale = 1 / std::sqrt(static_cast<double>(c.size));
  const auto [out, lse] = attention(q, k, v, mask, scale);
  const auto [out2, lse2] = plain::attention(q, k, v, mask, scale);
  EXPECT_LT(distance(out, out2), type == at::kFloat ? 1e-5 : 5e-3);
  EXPECT_LT(distance(lse, lse2), 1e-5);

  const auto gradients = [&] {
    const at::Tensor packed = poisoned({rows, c.queries, c.heads + 2 * c.kv_heads, c.size}).to(type);
    const at::Tensor other = poisoned({rows, c.keys, c.heads + 2 * c.kv_heads, c.size}).to(type);
    return std::array{packed.narrow(2, 0, c.heads), other.narrow(2, c.heads, c.kv_heads),
                      other.narrow(2, c.heads + c.kv_heads, c.kv_heads)};
  };
  auto got = gradients(), expected = gradients();
  const auto bias = [&] { return c.bias ? OptionalTensor(poisoned(mask.bias->sizes())) : std::nullopt; };
  const OptionalTensor dbias = bias(), dbias2 = bias();
  attention_backward(dout, q, k, v, out2, lse2, mask, scale, got[0], got[1], got[2], dbias);
  plain::attention_backward(dout, q, k, v, out2, lse2, mask, scale, expected[0], expected[1], expected[2], dbias2);
  if (c.bias) {
    EXPECT_LT(distance(*dbias, *dbias2), type == at::kFloat ? 2e-5 : 1.5e-2);
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(distance(got[i], expected[i]), type == at::kFloat ? 2e-5 : 1.5e-2) << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, Attention,
                         testing::Combine(testing::ValuesIn(gradient_cases), testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(1, 4)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + c10::toString(std::get<1>(test.param)) +
                                  std::to_string(std::get<2>(test.param));
                         });

/// Which keys each query sees, written out: values are unit vectors, so that an output is the row of probabilities.
TEST(AttentionMask, PromptsAreSeenInBothDirections) {
  // Two documents with prompts of 3 and 1 positions, then one without a prompt, then the filling of the row.
  const at::Tensor segments = at::tensor({0, 0, 0, 0, 0, 1, 1, 2, 2, -1}, at::kLong).unsqueeze(0),
                   prompts = at::tensor({3, 3, 3, 0, 0, 6, 0, 8, 0, 0}, at::kLong).unsqueeze(0);
  const char* const seen[] = {"111.......", "111.......", "111.......", "1111......", "11111.....",
                              ".....1....", ".....11...", ".......1..", ".......11.", ".........1"};
  const char* const in_window[] = {"11........", "111.......", ".11.......", "..11......", "...11.....",
                                   ".....1....", ".....11...", ".......1..", ".......11.", ".........1"};
  const at::Tensor q = at::zeros({1, 10, 1, 10}), v = at::eye(10).view({1, 10, 1, 10});
  for (const std::int64_t window : {0, 2}) {
    const AttentionMask mask{
        .key_lengths = {}, .segments = segments, .causal = true, .window = window, .prompts = prompts};
    for (const at::Tensor& out :
         {std::get<0>(attention(q, q, v, mask, 1)), std::get<0>(plain::attention(q, q, v, mask, 1))}) {
      for (std::int64_t i = 0; i < 10; ++i) {
        std::string row;
        for (std::int64_t j = 0; j < 10; ++j) row += out[0][i][0][j].item<float>() > 0 ? '1' : '.';
        EXPECT_EQ(row, (window > 0 ? in_window : seen)[i]) << i;
      }
    }
  }
}

/// More scores than the reference keeps at a time.
TEST(AttentionReference, PartsOfTheQueriesGiveTheWhole) {
  const std::int64_t length = 2500, heads = 4, documents = 500;
  ASSERT_GT(length * length * heads * 4, spec::score_bytes);
  const at::Tensor packed = values({1, length, heads + 2, 8}), dout = values({1, length, heads, 8}, at::kFloat, 2);
  const at::Tensor q = packed.narrow(2, 0, heads), k = packed.narrow(2, heads, 1), v = packed.narrow(2, heads + 1, 1);
  const at::Tensor place = at::arange(length), end = place.floor_divide(documents) * documents + 100;
  const AttentionMask mask{.key_lengths = {},
                           .segments = place.floor_divide(documents).view({1, length}),
                           .causal = true,
                           .window = 130,
                           .bias = values({heads, 2 * length - 1}, at::kFloat, 3),
                           .prompts = end.masked_fill(place.ge(end), 0).view({1, length})};
  const auto [out, lse] = attention(q, k, v, mask, 0.3);
  const auto [out2, lse2] = plain::attention(q, k, v, mask, 0.3);
  EXPECT_LT(distance(out2, out), 1e-5);
  EXPECT_LT(distance(lse2, lse), 1e-5);
  std::array<at::Tensor, 2> d{poisoned(packed.sizes()), poisoned(packed.sizes())},
      dbias{poisoned(mask.bias->sizes()), poisoned(mask.bias->sizes())};
  for (const int i : {0, 1}) {
    (i == 0 ? kernels::attention_backward : plain::attention_backward)(
        dout, q, k, v, out, lse, mask, 0.3, d[i].narrow(2, 0, heads), d[i].narrow(2, heads, 1),
        d[i].narrow(2, heads + 1, 1), dbias[i]);
  }
  EXPECT_LT(distance(d[1], d[0]), 2e-5);
  EXPECT_LT(distance(dbias[1], dbias[0]), 2e-5);
}

/// One row and one key head: queries and keys are cut into parts for the threads.
TEST(AttentionThreads, BitsDoNotDependOnTheirNumber) {
  const int before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t window : {0, 90}) {
      const at::Tensor packed = values({1, 333, 4, 24}, type), dout = values({1, 333, 2, 24}, type, 2);
      const at::Tensor q = packed.narrow(2, 0, 2), k = packed.narrow(2, 2, 1), v = packed.narrow(2, 3, 1);
      AttentionMask mask{.key_lengths = {}, .segments = {}, .causal = true, .window = window};
      if (window > 0) mask.bias = values({2, 665}, at::kFloat, 3);
      const auto results = [&](int threads) {
        at::set_num_threads(threads);
        const auto [out, lse] = attention(q, k, v, mask, 0.2);
        std::array all{out, lse, at::empty_like(q), at::empty_like(k), at::empty_like(v), at::zeros({2, 665})};
        attention_backward(dout, q, k, v, out, lse, mask, 0.2, all[2], all[3], all[4],
                           mask.bias ? OptionalTensor(all[5]) : std::nullopt);
        return all;
      };
      const auto one = results(1), three = results(3);
      for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i << " window " << window;
    }
  }
  at::set_num_threads(before);
}

/// By differences: each element of the bias moves the loss by its gradient.
TEST(AttentionBias, GradientIsTheSlopeOfTheLoss) {
  const at::Tensor packed = values({2, 5, 4, 8}), weights = values({2, 5, 2, 8}, at::kFloat, 2);
  const at::Tensor q = packed.narrow(2, 0, 2), k = packed.narrow(2, 2, 1), v = packed.narrow(2, 3, 1);
  AttentionMask mask{.key_lengths = at::tensor({5, 3}, at::kLong), .segments = {}, .bias = values({2, 9})};
  const auto [out, lse] = attention(q, k, v, mask, 0.3);
  const at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v), dbias = poisoned({2, 9});
  attention_backward(weights, q, k, v, out, lse, mask, 0.3, dq, dk, dv, dbias);
  const at::Tensor bias = *mask.bias;
  for (std::int64_t i = 0; i < bias.numel(); ++i) {
    const auto loss_at = [&](double shift) {
      mask.bias = bias.clone();
      mask.bias->view(-1)[i] += shift;
      return (std::get<0>(attention(q, k, v, mask, 0.3)) * weights).sum().item<double>();
    };
    EXPECT_NEAR(dbias.view(-1)[i].item<double>(), (loss_at(.03) - loss_at(-.03)) / .06, 2e-3) << i;
  }
}

TEST(PositionBias, TakesItsNumbersByDistance) {
  // One query at the last of 3 keys: distances -2, -1, 0. Slopes of two heads: 1/16 and 1/256.
  EXPECT_TRUE(alibi_bias(2, 1, 3, at::kCPU)
                  .equal(at::tensor({-2.0F / 16, -1.0F / 16, 0.0F, -2.0F / 256, -1.0F / 256, 0.0F}).view({2, 3})));
  // Two queries and two keys: distances -1, 0, 1.
  const at::Tensor table = at::arange(64, at::kFloat).view({32, 2});
  EXPECT_TRUE(relative_bias(table, 2, 2, true).equal(at::tensor({2.0F, 0.0F, 34.0F, 3.0F, 1.0F, 35.0F}).view({2, 3})));
  EXPECT_TRUE(relative_bias(table, 2, 2, false).equal(at::tensor({2.0F, 0.0F, 0.0F, 3.0F, 1.0F, 1.0F}).view({2, 3})));
  EXPECT_EQ(relative_bias(table.to(at::kBFloat16), 1, 200, false).scalar_type(), at::kFloat);

  for (const bool bidirectional : {true, false}) {  // the transpose of the look-up
    const at::Tensor dbias = values({2, 339}), x = values({32, 2}, at::kFloat, 2), dtable = at::ones({32, 2});
    const double expected = (dbias * relative_bias(x, 170, 170, bidirectional)).sum().item<double>();
    relative_bias_backward(dbias, 170, bidirectional, dtable, true);
    EXPECT_NEAR(((dtable - 1) * x).sum().item<double>(), expected, 1e-3) << bidirectional;
    relative_bias_backward(dbias, 170, bidirectional, dtable, false);
    EXPECT_NEAR((dtable * x).sum().item<double>(), expected, 1e-3) << bidirectional;
  }
}

TEST(AttentionMask, AQueryThatSeesNothingGivesZeros) {
  const at::Tensor q = values({2, 3, 2, 8}), k = values({2, 4, 2, 8}, at::kFloat, 2);
  const AttentionMask mask{.key_lengths = at::tensor({0, 4}, at::kLong), .segments = {}};
  const auto [out, lse] = attention(q, k, k, mask, 1.0);
  EXPECT_EQ(out[0].abs().max().item<float>(), 0);
  EXPECT_EQ(lse[0].max().item<float>(), -std::numeric_limits<float>::infinity());
  EXPECT_GT(out[1].abs().min().item<float>(), 0);
  const at::Tensor dq = poisoned({2, 3, 2, 8}), dk = poisoned({2, 4, 2, 8}), dv = poisoned({2, 4, 2, 8});
  attention_backward(out + 1, q, k, k, out, lse, mask, 1.0, dq, dk, dv);
  EXPECT_EQ(dk[0].abs().max().item<float>() + dv[0].abs().max().item<float>() + dq[0].abs().max().item<float>(), 0);
}

TEST(AttentionScores, LargeOnesNeitherOverflowNorVanish) {
  for (const std::int64_t queries : {1, 5}) {
    // One key's score is 300 or -300, the other's half of it.
    const at::Tensor q = at::ones({1, queries, 1, 4}), v = values({1, 2, 1, 4});
    const at::Tensor k = at::tensor({1.0F, 0.5F}).view({1, 2, 1, 1}).expand({1, 2, 1, 4}).contiguous();
    for (const double sign : {1.0, -1.0}) {
      const auto [out, lse] = attention(q, k, v, {}, sign * 75);
      EXPECT_FLOAT_EQ(lse.max().item<float>(), sign > 0 ? 300.0F : -150.0F) << queries;
      EXPECT_LT(distance(out[0][0][0], v[0][sign > 0 ? 0 : 1][0]), 1e-6) << queries;
    }
  }
}

TEST(AttentionScores, NanSpoilsTheQueriesThatSeeIt) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor packed = values({1, 40, 3, 16}, type);
    const at::Tensor q = packed.narrow(2, 0, 1), k = packed.narrow(2, 1, 1), v = packed.narrow(2, 2, 1);
    k[0][21][0][3].fill_(std::numeric_limits<float>::quiet_NaN());
    const AttentionMask mask{.key_lengths = {}, .segments = {}, .causal = true};
    const auto [out, lse] = attention(q, k, v, mask, 0.25);
    EXPECT_TRUE(out.narrow(1, 0, 21).isfinite().all().item<bool>());
    EXPECT_TRUE(out.narrow(1, 21, 19).isnan().all().item<bool>());
    at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    attention_backward(at::ones_like(out), q, k, v, out, lse, mask, 0.25, dq, dk, dv);
    EXPECT_TRUE(dq.narrow(1, 21, 19).isnan().all().item<bool>());
  }
}

TEST(RopeByHand, AnglesAreMultipliedByTheirFactors) {
  const at::Tensor scaled = rotary_waves(7, 4, 100, {1, 0.25}), plain = rotary_waves(7, 4, 100);
  EXPECT_TRUE(scaled.select(2, 0).equal(plain.select(2, 0)));
  EXPECT_FLOAT_EQ(scaled[6][0][1].item<float>(), static_cast<float>(std::cos(6 * 0.1 * 0.25)));
  EXPECT_FLOAT_EQ(scaled[6][1][1].item<float>(), static_cast<float>(std::sin(6 * 0.1 * 0.25)));
}

TEST(RopeByHand, TurnsFirstHalfAgainstSecondByHand) {
  // position 3, theta 100, size 4: pairs (0, 2) by 3 and (1, 3) by 3/10
  at::Tensor x = at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({1, 1, 1, 4});
  rope_(x, std::nullopt, 3, rotary_waves(4, 4, 100), false);
  const double expected[] = {std::cos(3) - 3 * std::sin(3), 2 * std::cos(0.3) - 4 * std::sin(0.3),
                             3 * std::cos(3) + std::sin(3), 4 * std::cos(0.3) + 2 * std::sin(0.3)};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(x.flatten()[i].item<double>(), expected[i], 1e-6) << i;
}

/// Type of the rows, size of a head: halves of whole vectors, of parts of one, and both.
class Rope : public testing::TestWithParam<std::tuple<at::ScalarType, std::int64_t>> {};

TEST_P(Rope, EqualsPlainAndTurnsBack) {
  const auto [type, size] = GetParam();
  const at::Tensor packed = values({2, 9, 6, size}, type), original = packed.clone();
  const at::Tensor waves = rotary_waves(14, size, 10000), other = rotary_waves(6, size, 500);
  const double bound = tolerance(type, 1e-6);
  at::Tensor x = packed.narrow(2, 0, 4), expected = original.narrow(2, 0, 4).clone();
  rope_(x, std::nullopt, 5, waves, false);
  plain::rope_(expected, std::nullopt, 5, waves, false);
  EXPECT_LT(distance(x, expected), bound);
  EXPECT_GT(distance(x, original.narrow(2, 0, 4)), 0.1);
  EXPECT_TRUE(packed.narrow(2, 4, 2).equal(original.narrow(2, 4, 2)));  // values stay
  rope_(x, std::nullopt, 5, waves, true);
  EXPECT_LT(distance(x, original.narrow(2, 0, 4)), 2 * bound);

  const at::Tensor positions = at::tensor({0, 1, 2, 0, 1, 2, 3, 4, 5}, at::kLong).repeat({2, 1});
  at::Tensor y = original.narrow(2, 0, 4).clone(), placed = y.clone();
  rope_(y, positions, 0, other, false);
  plain::rope_(placed, positions, 0, other, false);
  EXPECT_LT(distance(y, placed), bound);
}
INSTANTIATE_TEST_SUITE_P(Cases, Rope,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16), testing::Values(6, 32, 48)));

}  // namespace
}  // namespace argosy::test
