#include "spec/positions.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

namespace argosy::spec {
namespace {

using testing::DoubleEq, testing::DoubleNear, testing::ElementsAre;

TEST(AlibiSlopes, HalveFromHeadToHeadAndInterleaveBetweenPowersOfTwo) {
  EXPECT_THAT(alibi_slopes(1), ElementsAre(DoubleEq(1.0 / 256)));
  EXPECT_THAT(alibi_slopes(8), ElementsAre(.5, .25, .125, 1.0 / 16, 1.0 / 32, 1.0 / 64, 1.0 / 128, 1.0 / 256));
  // Those of 4 heads, then the first and the third of 8.
  EXPECT_THAT(alibi_slopes(6), ElementsAre(.25, 1.0 / 16, 1.0 / 64, 1.0 / 256, .5, .125));
}

// transformers' T5Attention._relative_position_bucket at these distances.
TEST(RelativeBuckets, AreThoseOfT5) {
  const struct {
    std::int64_t distance, encoder, decoder;
  } rows[] = {{-200, 15, 31}, {-128, 15, 31}, {-127, 15, 31}, {-64, 14, 26}, {-32, 12, 21},
              {-20, 10, 17},  {-16, 10, 16},  {-9, 8, 9},     {-8, 8, 8},    {-7, 7, 7},
              {-1, 1, 1},     {0, 0, 0},      {1, 17, 0},     {7, 23, 0},    {8, 24, 0},
              {20, 26, 0},    {64, 30, 0},    {127, 31, 0},   {200, 31, 0}};
  for (const auto& row : rows) {
    EXPECT_EQ(relative_bucket(row.distance, true), row.encoder) << row.distance;
    EXPECT_EQ(relative_bucket(row.distance, false), row.decoder) << row.distance;
  }
}

TEST(RotaryFactors, DivideLongWavelengthsAndBlendThoseBetween) {
  // transformers' llama3 frequencies for theta 500,000 and heads of 16, over those without scaling.
  EXPECT_THAT(rotary_factors({}, 5e5, 16), ElementsAre(1, 1, 1, 1, DoubleNear(0.3711223, 1e-6), 0.125, 0.125, 0.125));
  // The first of two pairs turns once in 2π positions. Half way between the factors, 2 and 4 turns, it is blended half.
  const RopeScaling scaling{.factor = 4, .low_freq_factor = 2, .high_freq_factor = 4, .original_max_positions = 100};
  const double turns = 100 / (2 * std::numbers::pi), blend = (100 / (2 * std::numbers::pi) / 5 - 2) / 2;
  const RopeScaling between{
      .factor = 4, .low_freq_factor = 2 * 5, .high_freq_factor = 4 * 5, .original_max_positions = 100};
  EXPECT_THAT(rotary_factors(scaling, 100, 4), ElementsAre(1, 0.25)) << turns << " and " << turns / 10;
  EXPECT_THAT(rotary_factors(between, 100, 4), ElementsAre(DoubleNear((1 - blend) / 4 + blend, 1e-12), 0.25));
}

}  // namespace
}  // namespace argosy::spec
