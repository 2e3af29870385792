#include "core/bytes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace argosy {
namespace {

TEST(DType, NamesAndSizesAgree) {
  const std::pair<DType, std::size_t> all[] = {{DType::f32, 4}, {DType::bf16, 2}, {DType::f16, 2}, {DType::f64, 8},
                                               {DType::i8, 1},  {DType::i16, 2},  {DType::i32, 4}, {DType::i64, 8},
                                               {DType::u8, 1},  {DType::u16, 2},  {DType::u32, 4}, {DType::u64, 8}};
  for (const auto& [dtype, size_bytes] : all) EXPECT_EQ(size_of(dtype), size_bytes) << name_of(dtype);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_f32(1.0F), 0x3f80);
  EXPECT_EQ(bf16_from_f32(1.0F + 0x1p-8F), 0x3f80) << "a tie goes to even";
  EXPECT_EQ(bf16_from_f32(1.0F + 0x1p-7F + 0x1p-8F), 0x3f82) << "a tie goes to even";
  EXPECT_EQ(bf16_from_f32(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);
  EXPECT_EQ(bf16_from_f32(-1.0F), 0xbf80);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80) << "beyond the largest bf16 lies infinity";
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::infinity()), 0x7f80);
}

TEST(Bf16, KeepsNaNAndEveryBf16) {
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0x7f800001U)))))
      << "payload in the lost half";
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_from_bf16(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(bf16_from_f32(value), bits);
  }
}

TEST(Bytes, AreViewsOfTheSameMemory) {
  std::vector<std::uint32_t> values{1, 0x01020304};
  const Bytes bytes = as_bytes(std::span<const std::uint32_t>{values});
  EXPECT_EQ(bytes.size(), 8U);
  EXPECT_EQ(bytes[4], std::byte{4});
  as_writable_bytes(std::span<std::uint32_t>{values})[0] = std::byte{9};
  EXPECT_EQ(values[0], 9U);
  EXPECT_EQ(as_bytes(std::string_view{"ab"})[1], std::byte{'b'});
}

}  // namespace
}  // namespace argosy
