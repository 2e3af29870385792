#include "core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace argosy {
namespace {

// Random123's kat_vectors, philox4x32 10.
TEST(Philox, EqualsTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones}, {ones, ones, ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, IsAFunctionOfItsCoordinates) {
  RandomStream a(1, 2, 3, 4), b(1, 2, 3, 4);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(a.next_u64(), b.next_u64());
  std::set<std::uint64_t> firsts;
  for (std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32})
    for (std::uint64_t x : {0ULL, 1ULL, 1ULL << 32})
      for (std::uint64_t y : {0ULL, 1ULL, 1ULL << 32})
        for (std::uint64_t z : {0ULL, 1ULL, 1ULL << 32}) firsts.insert(RandomStream(seed, x, y, z).next_u64());
  EXPECT_EQ(firsts.size(), 81U);
}

// Checkpoints and shards rest on these numbers: a change of the stream is a change of format.
TEST(RandomStream, KeepsItsNumbers) {
  RandomStream stream(1, 2, 3, 4);
  EXPECT_EQ(stream.next_u32(), 1088804473U);
  EXPECT_EQ(stream.next_u64(), 10882955473296374075ULL);
  EXPECT_EQ(Permutation(1000, 1, 2)(7), 307U);
}

TEST(RandomStream, UniformHasItsMoments) {
  RandomStream stream(7, 0);
  const int n = 200000;
  double sum = 0, squares = 0, low = 1, high = 0;
  for (int i = 0; i < n; ++i) {
    const double u = stream.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
    low = std::min(low, u);
    high = std::max(high, u);
  }
  const double four_sigma = 4 * std::sqrt(1.0 / 12 / n);
  EXPECT_NEAR(sum / n, 0.5, four_sigma);
  EXPECT_NEAR(squares / n, 1.0 / 3, four_sigma);
  EXPECT_LT(low, 1e-3);
  EXPECT_GT(high, 1 - 1e-3);
}

TEST(RandomStream, BelowIsEvenAndInRange) {
  RandomStream stream(8, 0);
  constexpr std::uint64_t n = 7;
  constexpr int draws = 70000;
  std::vector<int> counts(n);
  for (int i = 0; i < draws; ++i) ++counts.at(stream.below(n));
  for (const int count : counts) EXPECT_NEAR(count, draws / n, 4 * std::sqrt(draws / n));
  EXPECT_EQ(stream.below(1), 0U);
  // Without rejection every third value of this range would come twice as often.
  constexpr std::uint64_t huge = 3ULL << 62;
  std::vector<int> thirds(3);
  for (int i = 0; i < draws; ++i) ++thirds.at(stream.below(huge) % 3);
  for (const int count : thirds) EXPECT_NEAR(count, draws / 3.0, 4 * std::sqrt(draws / 3.0));
}

TEST(RandomStream, NormalHasItsMoments) {
  RandomStream stream(9, 0);
  const int n = 200000;
  double sum = 0, squares = 0;
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    beyond_two += std::abs(x) > 2;
  }
  EXPECT_NEAR(sum / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 4 * std::sqrt(2.0 / n));
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455, 4 * std::sqrt(0.0455 / n));
}

TEST(Permutation, VisitsEveryIndexOnce) {
  for (const std::uint64_t n : {1ULL, 2ULL, 3ULL, 4ULL, 5ULL, 16ULL, 17ULL, 1000ULL, 65537ULL}) {
    const Permutation permutation(n, 1, 2);
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t image = permutation(i);
      ASSERT_LT(image, n);
      ASSERT_FALSE(seen[image]) << n;
      seen[image] = true;
    }
  }
}

TEST(Permutation, DependsOnSeedAndStream) {
  const std::uint64_t n = 1000;
  const Permutation a(n, 1, 0), b(n, 2, 0), c(n, 1, 1), d(n, 1, 1ULL << 32);
  int ab = 0, ac = 0, cd = 0, fixed = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    ab += a(i) == b(i);
    ac += a(i) == c(i);
    cd += c(i) == d(i);
    fixed += a(i) == i;
  }
  for (const int agreements : {ab, ac, cd, fixed}) EXPECT_LE(agreements, 8) << "one is expected";  // Poisson(1)
}

TEST(Permutation, WorksOnLargeSets) {
  const std::uint64_t n = 10'000'000'000ULL;
  const Permutation permutation(n, 3, 4);
  std::set<std::uint64_t> images;
  for (std::uint64_t i = 0; i < 1000; ++i) images.insert(permutation(n - 1 - i));
  EXPECT_EQ(images.size(), 1000U);
  EXPECT_LT(*images.rbegin(), n);
  EXPECT_GT(*images.rbegin(), n / 2);
}

}  // namespace
}  // namespace argosy
