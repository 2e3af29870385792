#include "comm/ordered_sum.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace argosy::comm {
namespace {

/// ordered_sum in one plain loop.
void ordered_sum_reference(DType dtype, std::span<const std::byte* const> terms, float* out, std::int64_t elements) {
  const auto value = [&](std::size_t term, std::int64_t i) {
    return dtype == DType::bf16 ? f32_from_bf16(reinterpret_cast<const std::uint16_t*>(terms[term])[i])
                                : reinterpret_cast<const float*>(terms[term])[i];
  };
  for (std::int64_t i = 0; i < elements; ++i) {
    float sum = value(0, i);
    for (std::size_t term = 1; term < terms.size(); ++term) sum += value(term, i);
    out[i] = sum;
  }
}

/// `count` terms of wildly different sizes, so that any other order of additions shows in the bits.
std::vector<std::vector<std::byte>> make_terms(DType dtype, std::size_t count, std::int64_t elements) {
  std::mt19937 random{static_cast<unsigned>(count * 1000 + static_cast<std::size_t>(elements))};
  std::vector<std::vector<std::byte>> terms(count);
  for (auto& term : terms) {
    for (std::int64_t i = 0; i < elements; ++i) {
      const float value = std::ldexp(static_cast<float>(random()) / 4e9F - 0.5F, static_cast<int>(random() % 24));
      const auto narrow = bf16_from_f32(value);
      const auto* const bytes = dtype == DType::bf16 ? reinterpret_cast<const std::byte*>(&narrow)
                                                     : reinterpret_cast<const std::byte*>(&value);
      term.insert(term.end(), bytes, bytes + size_of(dtype));
    }
  }
  return terms;
}

std::vector<const std::byte*> pointers(const std::vector<std::vector<std::byte>>& terms) {
  std::vector<const std::byte*> at;
  for (const auto& term : terms) at.push_back(term.data());
  return at;
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

class OrderedSum : public testing::TestWithParam<DType> {};

TEST_P(OrderedSum, EqualsThePlainLoopBitForBit) {
  for (std::size_t count = 1; count <= 9; ++count) {
    for (const std::int64_t elements : {0, 1, 17, 4096, 4097, 9001}) {
      const auto terms = make_terms(GetParam(), count, elements);
      std::vector<float> fast(static_cast<std::size_t>(elements), -1), plain = fast;
      ordered_sum(GetParam(), pointers(terms), fast.data(), elements);
      ordered_sum_reference(GetParam(), pointers(terms), plain.data(), elements);
      ASSERT_EQ(bits(fast), bits(plain)) << count << " terms of " << elements;
    }
  }
}

TEST_P(OrderedSum, TheOrderOfTermsShows) {
  auto terms = make_terms(GetParam(), 4, 1000);
  std::vector<float> forward(1000), backward(1000);
  ordered_sum(GetParam(), pointers(terms), forward.data(), 1000);
  std::swap(terms[0], terms[3]);
  ordered_sum(GetParam(), pointers(terms), backward.data(), 1000);
  EXPECT_NE(bits(forward), bits(backward));
}

INSTANTIATE_TEST_SUITE_P(All, OrderedSum, testing::Values(DType::f32, DType::bf16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST(OrderedSum, MayBeWrittenOverAnyOfItsTerms) {
  for (std::size_t count = 1; count <= 6; ++count) {
    for (std::size_t over = 0; over < count; ++over) {
      auto terms = make_terms(DType::f32, count, 5000);
      std::vector<float> plain(5000), result(5000);
      ordered_sum_reference(DType::f32, pointers(terms), plain.data(), 5000);
      ordered_sum(DType::f32, pointers(terms), reinterpret_cast<float*>(terms[over].data()), 5000);
      std::memcpy(result.data(), terms[over].data(), terms[over].size());
      ASSERT_EQ(bits(result), bits(plain)) << "over term " << over << " of " << count;
    }
  }
}

TEST(OrderedSum, MinusZeroAloneStays) {
  const float zero = -0.0F;
  const auto* const term = reinterpret_cast<const std::byte*>(&zero);
  float sum = 1;
  ordered_sum(DType::f32, {&term, 1}, &sum, 1);
  EXPECT_TRUE(std::signbit(sum));
}

TEST(RoundToBf16, RoundsEveryElementToNearestEven) {
  std::vector<float> values{1.0F, 1.00390625F, 1.01171875F, -3.0e38F, 0.1F, std::bit_cast<float>(0x7f800001U)};
  values.resize(1001, 0.3F);
  std::vector<std::uint16_t> rounded(values.size());
  round_to_bf16(values.data(), rounded.data(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(rounded[i], bf16_from_f32(values[i]));
  EXPECT_EQ(f32_from_bf16(rounded[1]), 1.0F);  // a tie goes to the even neighbour
  EXPECT_EQ(f32_from_bf16(rounded[2]), 1.015625F);
}

}  // namespace
}  // namespace argosy::comm
