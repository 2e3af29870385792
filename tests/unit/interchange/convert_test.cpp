#include "interchange/convert.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/refusal.hpp"

namespace argosy::interchange {
namespace {

double value_of_half(std::uint32_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 10) & 31U);
  const double mantissa = bits & 1023U;
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

TEST(Float16, EveryFiniteHalfComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    if (((bits >> 10) & 31U) == 31U) continue;
    ASSERT_EQ(f16_from_f32(static_cast<float>(value_of_half(bits))), bits);
  }
}

TEST(Float16, RoundsBetweenNeighboursToTheNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bffU; ++bits) {
    const double low = value_of_half(bits), high = value_of_half(bits + 1), middle = (low + high) / 2;
    ASSERT_EQ(f16_from_f32(static_cast<float>(low + (high - low) * 0.375)), bits);
    ASSERT_EQ(f16_from_f32(static_cast<float>(low + (high - low) * 0.625)), bits + 1);
    ASSERT_EQ(f16_from_f32(static_cast<float>(middle)), bits % 2 == 0 ? bits : bits + 1);
  }
}

TEST(Float16, LargeValuesAreRefusedByName) {
  EXPECT_EQ(f16_from_f32(65520.0F), 0x7c00U);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::infinity()), 0x7c00U);
  const std::vector<float> values{1.0F, -70000.0F};
  const auto convert = [&] { (void)as_floats(values, DType::f16, "decoder/embeddings/weight"); };
  EXPECT_TRUE(test::says(test::refusal(Fault::numeric, convert), "decoder/embeddings/weight"));
}

TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  const std::vector<float> values{1 + 0x1p-8F, 1 + 3 * 0x1p-8F, 1 + 0x1.8p-8F, -1 - 0x1p-9F};
  const std::vector<std::byte> bytes = as_floats(values, DType::bf16, "x");
  std::array<std::uint16_t, 4> bits{};
  ASSERT_EQ(bytes.size(), sizeof bits);
  std::memcpy(bits.data(), bytes.data(), sizeof bits);
  EXPECT_EQ(bits, (std::array<std::uint16_t, 4>{0x3f80, 0x3f82, 0x3f81, 0xbf80}));
}

TEST(Int16, AMatrixScalesByItsLargestValueAndRoundsHalfToEven) {
  const std::vector<float> values{0.5F, -4.0F, 1.0F / 512, 3.0F / 512};
  const float scale = int16_scale(largest_magnitude(values));
  EXPECT_EQ(scale, 256.0F);
  std::array<std::int16_t, 4> codes{};
  to_int16(values, scale, std::as_writable_bytes(std::span{codes}));
  EXPECT_EQ(codes, (std::array<std::int16_t, 4>{128, -1024, 0, 2}));
  EXPECT_EQ(int16_scale(0), 1.0F);
}

TEST(Int8, RowsScaleByTheirLargestValueAndRoundHalfToEven) {
  const std::vector<float> values{0.5F, -1.0F, 0.25F, 0.0F, 0.0F, 0.0F};
  const Int8Rows rows = as_int8_rows(values, 2);
  const auto code = [&](std::size_t i) { return static_cast<int>(static_cast<std::int8_t>(rows.codes[i])); };
  EXPECT_EQ((std::array{code(0), code(1), code(2), code(3)}), (std::array{64, -127, 32, 0}));  // of 63.5, 31.75
  std::array<float, 2> scales{};
  ASSERT_EQ(rows.scales.size(), sizeof scales);
  std::memcpy(scales.data(), rows.scales.data(), sizeof scales);
  EXPECT_EQ(scales, (std::array{127.0F, 1.0F}));
}

}  // namespace
}  // namespace argosy::interchange
