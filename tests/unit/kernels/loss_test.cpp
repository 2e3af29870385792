#include <ATen/ops/tensor.h>

#include "kernels/head_loss.hpp"
#include "unit/kernels/compare.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

struct Results {
  at::Tensor sums, dh, dweight, dbias, nll{};
};

constexpr double between_errors = 1.2;  // some error norms of random logits are below, some above

class HeadLoss : public testing::TestWithParam<std::tuple<at::ScalarType, bool, std::int64_t>> {};

TEST_P(HeadLoss, EqualsPlain) {
  const auto [type, with_bias, chunk_rows] = GetParam();
  const std::int64_t rows = 37, width = 16, vocabulary = 70, live = 61;
  const at::Tensor h = values({rows, width}, type), weight = values({vocabulary, width}, type, 2);
  const OptionalTensor bias = with_bias ? OptionalTensor(values({vocabulary}, type, 3)) : std::nullopt;
  at::Tensor labels = (at::arange(rows) * 7).remainder(live);
  labels = labels.masked_fill((at::arange(rows)).remainder(5).eq(0), -1);
  const auto run = [&](bool fast, bool accumulate, double truncation) {
    Results r{{},
              poisoned({rows, width}).to(type),
              accumulate ? values({vocabulary, width}) : poisoned({vocabulary, width}),
              accumulate ? values({vocabulary}) : poisoned({vocabulary}),
              poisoned({rows}).to(at::kDouble)};
    const OptionalTensor dbias = with_bias ? OptionalTensor(r.dbias) : std::nullopt;
    const std::int64_t bytes = chunk_rows * live * 4;
    r.sums = (fast ? head_loss : plain::head_loss)(h, weight, bias, labels,
                                                   {.label_smoothing = 0.1,
                                                    .z = 1e-3,
                                                    .truncation = truncation,
                                                    .loss_scale = 0.2,
                                                    .live = live,
                                                    .chunk_bytes = bytes},
                                                   {.dh = r.dh,
                                                    .dweight = r.dweight,
                                                    .dbias = dbias,
                                                    .accumulate_weight = accumulate,
                                                    .accumulate_bias = accumulate,
                                                    .nll = r.nll});
    return r;
  };
  for (const auto& [accumulate, truncation] :
       {std::pair{false, 0.0}, {true, 0.0}, {false, between_errors}, {true, between_errors}}) {
    const Results got = run(true, accumulate, truncation), expected = run(false, accumulate, truncation);
    EXPECT_LT(distance(got.sums, expected.sums), 1e-6);
    EXPECT_EQ(got.sums[2].item<double>(), 29);
    EXPECT_EQ(got.sums[3].item<double>(), expected.sums[3].item<double>());
    EXPECT_EQ(got.sums[4].item<double>(), expected.sums[4].item<double>());
    EXPECT_EQ(got.sums[4].item<double>() > 0 && got.sums[4].item<double>() < 29, truncation > 0)
        << got.sums[4].item<double>();
    EXPECT_LT(distance(got.dh, expected.dh), tolerance(type));
    EXPECT_LT(distance(got.dweight, expected.dweight), tolerance(type));
    if (with_bias) {
      EXPECT_LT(distance(got.dbias, expected.dbias), 1e-5);
    }
    EXPECT_LT(distance(got.nll, expected.nll), 1e-6);
    EXPECT_NEAR(got.nll.sum().item<double>(), got.sums[0].item<double>(), 1e-9);
    EXPECT_EQ(got.nll[0].item<double>(), 0);
    EXPECT_EQ(got.dh[0].abs().max().item<double>(), 0);  // no loss, no gradient
    if (!accumulate) {
      EXPECT_EQ(got.dweight.narrow(0, live, 9).abs().max().item<float>(), 0);  // nor for dead ids
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HeadLoss,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16), testing::Bool(),
                                          testing::Values(9, 1000)));

TEST(HeadLoss, ByHand) {
  // logits 0, ln 2, ln 5 → probabilities 1/8, 2/8, 5/8; the fourth id is dead and must not count
  const at::Tensor h = at::ones({1, 1}),
                   weight = at::tensor({0.0F, std::log(2.0F), std::log(5.0F), 50.0F}).view({4, 1});
  at::Tensor dweight = poisoned({4, 1});
  const at::Tensor sums = head_loss(h, weight, std::nullopt, at::tensor({1}, at::kLong),
                                    {.label_smoothing = 0.3, .live = 3}, {.dh = {}, .dweight = dweight, .dbias = {}});
  const double nll = std::log(4.0), lse = std::log(8.0), mean = (std::log(2.0) + std::log(5.0)) / 3;
  EXPECT_NEAR(sums[0].item<double>(), nll, 1e-6);
  EXPECT_NEAR(sums[1].item<double>(), 0.7 * nll + 0.3 * (lse - mean), 1e-6);
  EXPECT_EQ(sums[3].item<double>(), 0);
  EXPECT_NEAR(dweight[0].item<double>(), 0.125 - 0.1, 1e-6);
  EXPECT_NEAR(dweight[1].item<double>(), 0.25 - 0.7 - 0.1, 1e-6);
  EXPECT_EQ(dweight[3].item<double>(), 0);
}

/// Rows of which each has the probabilities 1/8, 2/8, 5/8 and one of these labels.
Results of_eighths(const std::vector<std::int64_t>& labels, double truncation) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  const at::Tensor h = at::ones({rows, 1}), weight = at::tensor({0.0F, std::log(2.0F), std::log(5.0F)}).view({3, 1});
  Results r{{}, poisoned({rows, 1}), poisoned({3, 1}), poisoned({3})};
  r.sums = head_loss(h, weight, at::zeros({3}), at::tensor(labels, at::kLong),
                     {.label_smoothing = 0.1, .truncation = truncation, .live = 3},
                     {.dh = r.dh, .dweight = r.dweight, .dbias = r.dbias});
  return r;
}

TEST(HeadLoss, TruncatesByTheErrorNorm) {
  // Σp² = 30/64, so that the norm is √(30/64 - 2p + 1): √1.21875, √.96875 and √.21875 for the three labels.
  const double all = std::log(8.0) + std::log(4.0) + std::log(8.0 / 5);
  const auto expect_kept = [&](double truncation, const std::vector<std::int64_t>& kept, double truncated) {
    const Results got = of_eighths({0, 1, 2}, truncation), expected = of_eighths(kept, 0);
    EXPECT_NEAR(got.sums[0].item<double>(), all, 1e-6) << "nll is of all tokens";
    EXPECT_EQ(got.sums[1].item<double>(), expected.sums[1].item<double>());
    EXPECT_EQ(got.sums[2].item<double>(), 3);
    EXPECT_EQ(got.sums[3].item<double>(), 1);
    EXPECT_EQ(got.sums[4].item<double>(), truncated);
    EXPECT_LT(distance(got.dh, expected.dh), 1e-6);  // LibTorch's products may depend on the number of rows
    EXPECT_LT(distance(got.dweight, expected.dweight), 1e-6);
    EXPECT_LT(distance(got.dbias, expected.dbias), 1e-6);
  };
  expect_kept(0, {0, 1, 2}, 0);
  expect_kept(std::sqrt(1.2188), {0, 1, 2}, 0);
  expect_kept(std::sqrt(1.2187), {-1, 1, 2}, 1);
  expect_kept(std::sqrt(0.9688), {-1, 1, 2}, 1);
  expect_kept(std::sqrt(0.9687), {-1, -1, 2}, 2);
  expect_kept(std::sqrt(0.2187), {-1, -1, -1}, 3);
}

TEST(HeadLoss, TheRootOfTwoTruncatesNothing) {
  // Of three sure predictions the first is wrong, the second right, and the third is not a number.
  const at::Tensor h = at::tensor({1.0F, 1.0F, std::nanf("")}).view({3, 1}),
                   weight = at::tensor({-300.0F, 300.0F}).view({2, 1}), labels = at::tensor({0, 1, 1}, at::kLong);
  for (const auto function : {&kernels::head_loss, &plain::head_loss}) {
    const auto truncated = [&](double threshold) {
      return function(h, weight, std::nullopt, labels, {.truncation = threshold, .live = 2}, {.dh = at::empty({3, 1})})
          .select(0, 4)
          .item<double>();
    };
    EXPECT_EQ(truncated(std::sqrt(2.0)), 0);
    EXPECT_EQ(truncated(1.414), 1);
    EXPECT_EQ(truncated(1e-6), 1) << "a number that is none must be seen";
  }
  const Results off = of_eighths({0, 1, 2}, 0), on = of_eighths({0, 1, 2}, std::sqrt(2.0));
  EXPECT_TRUE(at::equal(on.sums, off.sums));
  EXPECT_TRUE(at::equal(on.dh, off.dh));
  EXPECT_TRUE(at::equal(on.dweight, off.dweight));
  EXPECT_TRUE(at::equal(on.dbias, off.dbias));
}

TEST(HeadLoss, LargeLogitsAndTies) {
  // logits 300, 200, 300 and their negatives; the label is the second, then the third
  const at::Tensor h = at::tensor({1.0F, 1.0F, 1.0F, -1.0F}).view({4, 1}),
                   weight = at::tensor({300.0F, 200.0F, 300.0F}).view({3, 1});
  const auto sums = [&](std::int64_t row, std::int64_t label) {
    at::Tensor labels = at::full({4}, -1, at::kLong);
    labels[row] = label;
    return head_loss(h, weight, std::nullopt, labels, {.live = 3}, {.dh = {}, .dweight = {}, .dbias = {}});
  };
  EXPECT_NEAR(sums(0, 1)[0].item<double>(), 100 + std::log(2.0), 1e-4);
  EXPECT_NEAR(sums(0, 2)[0].item<double>(), std::log(2.0), 1e-4);
  EXPECT_NEAR(sums(3, 1)[0].item<double>(), 0, 1e-6);
  EXPECT_NEAR(sums(3, 2)[0].item<double>(), 100, 1e-4);
  EXPECT_EQ(sums(0, 0)[3].item<double>(), 1);  // of the two largest the lower id is predicted
  EXPECT_EQ(sums(0, 2)[3].item<double>(), 0);
}

TEST(HeadLoss, NoRowBearsLoss) {
  at::Tensor dh = poisoned({2, 4}), dweight = poisoned({5, 4});
  const at::Tensor sums = head_loss(values({2, 4}), values({5, 4}), std::nullopt, at::tensor({-1, -1}, at::kLong),
                                    {.live = 5}, {.dh = dh, .dweight = dweight, .dbias = {}});
  EXPECT_EQ(sums.abs().sum().item<double>() + dh.abs().sum().item<double>() + dweight.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace argosy::test
