#include "kernels/stochastic.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <bit>

#include "kernels/optimizer.hpp"
#include "unit/kernels/compare.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

constexpr std::uint32_t all_remainders = 1U << 16;

TEST(RoundStochastically, GoesUpAsOftenAsTheBitsCutOffSay) {
  const float greatest = std::numeric_limits<float>::max();
  for (const float value :
       {1.0F, 1.0F + 0x1p-23F, 1.0F + 0x1p-8F, -3.14159274F, 1e-40F, -0.1F, 65535.99F, 0.0F, 0x1.fffffep0F, 1e30F}) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    std::uint32_t ups = 0;
    for (std::uint32_t r = 0; r < all_remainders; ++r) {
      const std::uint32_t rounded = round_stochastically(bits, r | 0xabcd0000U);
      ASSERT_EQ(rounded & 0xffffU, 0U);
      const std::uint32_t step = rounded - (bits & 0xffff0000U);
      ASSERT_TRUE(step == 0 || step == all_remainders) << value << " with " << r;
      ups += step != 0 ? 1 : 0;
    }
    EXPECT_EQ(ups, bits & 0xffffU) << value;
  }
  for (const float odd : {greatest, -greatest, HUGE_VALF, -HUGE_VALF}) {
    const auto bits = std::bit_cast<std::uint32_t>(odd);
    for (std::uint32_t r = 0; r < all_remainders; ++r)
      ASSERT_EQ(round_stochastically(bits, r), bits & 0xffff0000U) << odd << " with " << r;
  }
  for (const std::uint32_t nan : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0x7fffffffU}) {
    for (std::uint32_t r = 0; r < all_remainders; ++r)
      ASSERT_TRUE(std::isnan(std::bit_cast<float>(round_stochastically(nan, r)))) << nan << " with " << r;
  }
}

/// Weights, moments and gradient of one parameter, or a piece of it.
struct Piece {
  at::Tensor weights, m, v, gradient;
  Piece(std::int64_t n, double slope)
      : weights(values({n}, at::kBFloat16)), m(at::zeros({n})), v(at::zeros({n})), gradient(values({n}) * slope) {}
  [[nodiscard]] Piece part(std::int64_t begin, std::int64_t end) const {
    Piece piece = *this;
    for (at::Tensor* each : {&piece.weights, &piece.m, &piece.v, &piece.gradient}) *each = each->slice(0, begin, end);
    return piece;
  }
  void update(const AdamwOptions& options, const Rounding& rounding, float coefficient = 0.5F) const {
    adamw_stochastic_(weights, m, v, gradient, at::tensor({coefficient}), options, rounding);
  }
};

const AdamwOptions decay{.lr = 1e-2, .weight_decay = 0.1, .step = 7};  // alone, its update has the same bits everywhere
const AdamwOptions slope{.lr = 1e-2, .epsilon = 1e-4, .step = 7};

TEST(AdamwStochastic, EqualsPlain) {
  for (const auto& [options, scale] : {std::pair{decay, 0.0}, std::pair{slope, 1.0}}) {
    for (const std::int64_t begin : {0, 1280}) {
      Piece fused(5003, scale), reference(5003, scale);
      const Rounding rounding{.seed = 1ULL << 40 | 5, .parameter = 3, .begin = begin};
      fused.update(options, rounding);
      plain::adamw_stochastic_(reference.weights, reference.m, reference.v, reference.gradient, at::tensor({0.5F}),
                               options, rounding);
      if (scale == 0) {
        EXPECT_TRUE(at::equal(fused.weights, reference.weights));
      } else {  // rounding of the fp32 value may move it over the edge
        EXPECT_GT(fused.weights.eq(reference.weights).to(at::kDouble).mean().item<double>(), 0.999);
        EXPECT_LT(distance(fused.weights, reference.weights), tolerance(at::kBFloat16));
      }
      EXPECT_LT(distance(fused.v, reference.v), 1e-6);
      EXPECT_FALSE(at::equal(fused.weights, Piece(5003, scale).weights));
    }
  }
}

TEST(AdamwStochastic, DoesNotShowHowAParameterIsCut) {
  Piece whole(4000, 1), cut(4000, 1), threads(1 << 17, 1), one_thread(1 << 17, 1);
  const Rounding names{.seed = 5, .parameter = 2};
  whole.update(slope, names);
  for (const auto& [begin, end] : {std::pair{0, 256}, std::pair{256, 3072}, std::pair{3072, 4000}})
    cut.part(begin, end).update(slope, {.seed = 5, .parameter = 2, .begin = begin});
  EXPECT_TRUE(at::equal(whole.weights, cut.weights));
  EXPECT_TRUE(at::equal(whole.m, cut.m));
  const int threads_before = at::get_num_threads();
  at::set_num_threads(3);
  threads.update(slope, names);
  at::set_num_threads(1);
  one_thread.update(slope, names);
  at::set_num_threads(threads_before);
  EXPECT_TRUE(at::equal(threads.weights, one_thread.weights));
}

TEST(AdamwStochastic, IsUnbiasedAndNamedBySeedStepAndParameter) {
  constexpr std::int64_t n = 1 << 16;
  // 1 - 0.001·0.5 lies 0.128 of the way from 1 to the bf16 number below
  const auto rounded = [&](const Rounding& names, std::int64_t step) {
    Piece piece(n, 0);
    piece.weights.fill_(1);
    piece.update({.lr = 1e-3, .weight_decay = 0.5, .step = step}, names);
    return piece.weights.to(at::kDouble);
  };
  const Rounding names{.seed = 5, .parameter = 2};
  const at::Tensor first = rounded(names, 1);
  const double share = 0.0005 / 0x1p-8, deviation = 0x1p-8 * std::sqrt(share * (1 - share) / n);
  EXPECT_NEAR(first.mean().item<double>(), 1 - 0.0005, 4 * deviation);
  EXPECT_EQ(first.lt(1).logical_and(first.gt(1 - 0x1.1p-8)).sum().item<std::int64_t>(),
            first.ne(1).sum().item<std::int64_t>())
      << "the neighbour below or nothing; the nearest would be 1 always";
  EXPECT_TRUE(at::equal(first, rounded(names, 1)));
  const double agree = share * share + (1 - share) * (1 - share);
  const auto check_independent = [&](const at::Tensor& other) {
    EXPECT_NEAR(first.eq(other).to(at::kDouble).mean().item<double>(), agree, 0.01);
  };
  check_independent(rounded(names, 2));
  check_independent(rounded({.seed = 6, .parameter = 2}, 1));
  check_independent(rounded({.seed = 5 + (1ULL << 32), .parameter = 2}, 1));
  check_independent(rounded({.seed = 5, .parameter = 3}, 1));
  check_independent(rounded({.seed = 5, .parameter = 2, .begin = n}, 1));
}

TEST(AdamwStochastic, LeavesAllOfASkippedStep) {
  Piece piece(1000, 1);
  const at::Tensor before = piece.weights.clone();
  piece.update(decay, {}, -1);
  EXPECT_TRUE(at::equal(piece.weights, before));
  EXPECT_EQ(piece.m.abs().sum().item<double>() + piece.v.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace argosy::test
