#include "kernels/decoding.hpp"

#include <ATen/ops/tensor.h>

#include <array>

#include "unit/kernels/compare.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

struct StepCase {
  std::int64_t rows, heads, kv_heads, size, most, window;
};

class AttentionStep : public testing::TestWithParam<std::tuple<at::ScalarType, StepCase>> {};

TEST_P(AttentionStep, EqualsPlain) {
  const auto [type, c] = GetParam();
  for (const auto& [adds, biased] : {std::pair{false, false}, {true, false}, {true, true}}) {
    // Places in no order; rows of 1 to `most` positions, the first ones of which they share.
    const at::Tensor places = at::empty({c.rows, c.most}, at::kLong), lengths = at::empty({c.rows}, at::kLong);
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const std::int64_t length = 1 + row * 7 % c.most;
      lengths[row] = length;
      for (std::int64_t i = 0; i < c.most; ++i)
        places[row][i] = i >= length ? -1 : i < length / 2 ? 2 * i : 2 * (c.most + row * c.most + i) + 1;
    }
    const at::Tensor pool = values({2 * (c.rows + 2) * c.most + 2, 2 * c.kv_heads, c.size}, type, 2);
    const at::Tensor packed = values({c.rows, c.heads + 2 * c.kv_heads, c.size}, type, 3);
    const at::Tensor q = packed.narrow(1, 0, c.heads);
    const OptionalTensor added = adds ? OptionalTensor(packed.narrow(1, c.heads, 2 * c.kv_heads)) : std::nullopt;
    const CachedKeys ours{pool.clone(), places, lengths}, reference{pool.clone(), places, lengths};
    const OptionalTensor bias = biased ? OptionalTensor(values({c.heads, c.most}, at::kFloat, 4)) : std::nullopt;
    const at::Tensor out = attention_step(q, added, ours, c.window, 0.3, bias),
                     expected = plain::attention_step(q, added, reference, c.window, 0.3, bias);
    ASSERT_EQ(out.sizes(), expected.sizes());
    EXPECT_TRUE(ours.pool.equal(reference.pool));
    EXPECT_EQ(ours.pool.equal(pool), !adds || c.rows == 0);
    if (c.rows > 0) {
      EXPECT_LT(distance(out, expected), tolerance(type));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionStep,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(StepCase{5, 4, 4, 32, 40, 0}, StepCase{9, 6, 2, 5, 17, 0},
                                                          StepCase{4, 2, 1, 64, 30, 7}, StepCase{1, 1, 1, 1, 1, 1},
                                                          StepCase{0, 2, 2, 8, 3, 0})));

TEST(AttentionStep, TheLastElementOfTheBiasIsForTheLastPosition) {
  const at::Tensor pool = values({4, 2, 8}), q = values({2, 1, 8}), bias = at::zeros({1, 4});
  bias[0][2] = 60;  // the last but one
  const CachedKeys keys{pool, at::tensor({0, 1, 2, 3, 2, 1, 0, 0}, at::kLong).view({2, 4}),
                        at::tensor({4, 2}, at::kLong)};
  const at::Tensor out = attention_step(q, std::nullopt, keys, 0, 1, bias);
  EXPECT_LT(distance(out[0][0], pool[2][1]), 1e-6);
  EXPECT_LT(distance(out[1][0], pool[2][1]), 1e-6);
}

TEST(AttentionStep, ARowWithNanSpoilsNoOther) {
  const at::Tensor pool = values({6, 2, 8}), q = values({2, 1, 8});
  pool[5].fill_(std::numeric_limits<float>::quiet_NaN());
  const CachedKeys keys{pool, at::tensor({0, 1, 2, 3, 4, 5}, at::kLong).view({2, 3}), at::tensor({3, 3}, at::kLong)};
  const at::Tensor out = attention_step(q, std::nullopt, keys, 0, 1);
  EXPECT_TRUE(out[0].isfinite().all().item<bool>());
  EXPECT_TRUE(out[1].isnan().all().item<bool>());
  pool[5].fill_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(attention_step(q, std::nullopt, keys, 0, 1)[0].isfinite().all().item<bool>());
}

TEST(TopLogProbabilities, EqualsPlain) {
  for (const auto [rows, width, live, count] : {std::array<std::int64_t, 4>{7, 1000, 1000, 8},
                                                {3, 130, 129, 1},
                                                {2, 8, 3, 8},
                                                {2, 300, 300, 100},
                                                {4, 64, 1, 2},
                                                {0, 9, 9, 4}}) {
    const at::Tensor logits = values({rows, width}, at::kFloat, static_cast<double>(live)) * 5;
    logits.narrow(1, live, width - live).fill_(100);  // dead ids, which nobody may see
    if (live > 2) logits.select(1, 1).fill_(-std::numeric_limits<float>::infinity());
    const auto [value, id] = top_log_probabilities(logits, live, count);
    const auto [expected, expected_id] = plain::top_log_probabilities(logits, live, count);
    ASSERT_EQ(value.sizes(), expected.sizes());
    const at::Tensor possible = expected.isfinite();
    EXPECT_TRUE(value.isfinite().equal(possible)) << live;
    EXPECT_TRUE(id.masked_select(possible).equal(expected_id.masked_select(possible))) << live;
    if (rows > 0) {
      EXPECT_LT((value - expected).masked_fill(possible.logical_not(), 0).abs().max().item<double>(), 1e-5);
    }
  }
}

TEST(TopLogProbabilities, OfEqualOnesTheLowerIdIsFirst) {
  const at::Tensor logits = at::zeros({1, 300});
  for (const std::int64_t id : {290, 70, 130}) logits[0][id] = 1;
  const auto [value, id] = top_log_probabilities(logits, 300, 5);
  EXPECT_TRUE(id.equal(at::tensor({70, 130, 290, 0, 1}, at::kLong).unsqueeze(0))) << id;
}

TEST(TopLogProbabilities, NanAndInfinityAreSeen) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const at::Tensor logits = values({2, 100});
    logits[1][77] = bad;
    const at::Tensor value = std::get<0>(top_log_probabilities(logits, 100, 4));
    EXPECT_TRUE(value[0].isfinite().all().item<bool>());
    EXPECT_TRUE(value[1].isnan().all().item<bool>()) << bad;
  }
}

}  // namespace
}  // namespace argosy::test
