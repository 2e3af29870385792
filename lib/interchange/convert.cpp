#include "interchange/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "core/error.hpp"

namespace argosy::interchange {
std::uint16_t f16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and above round to infinity
  if (magnitude < 0x38800000U) {  // subnormal: adding 0.5 leaves round(value · 2^24) in the low mantissa bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

float f32_from_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16, magnitude = bits & 0x7fffU;
  if (magnitude < 0x0400U) {  // subnormal: a multiple of 2^-24
    const auto value = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
    return std::bit_cast<float>(sign | value);
  }
  const std::uint32_t exponent = magnitude >= 0x7c00U ? 0x70000000U : 0x38000000U;  // of infinity and NaN: all ones
  return std::bit_cast<float>(sign | ((magnitude << 13) + exponent));
}

namespace {

ARGOSY_WIDEST void to_bf16(std::span<const float> values, std::uint16_t* to) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = bf16_from_f32(values[i]);
}

ARGOSY_WIDEST void to_codes(std::span<const float> values, float scale, std::int16_t* to) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<std::int16_t>(std::nearbyint(values[i] * scale));
}

ARGOSY_WIDEST void to_codes(std::span<const float> values, float scale, std::int8_t* to) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<std::int8_t>(std::nearbyint(values[i] * scale));
}

/// Magnitudes of floats are ordered as their bits are.
ARGOSY_WIDEST std::uint32_t largest_bits(std::span<const float> values) noexcept {
  std::uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
  return largest;
}

}  // namespace

float largest_magnitude(std::span<const float> values) noexcept { return std::bit_cast<float>(largest_bits(values)); }

void to_floats(std::span<const float> values, DType dtype, std::string_view name, MutableBytes to) {
  ARGOSY_CHECK(to.size() == values.size() * size_of(dtype), "{} bytes for {} values", to.size(), values.size());
  if (dtype == DType::f32) {
    std::ranges::copy(std::as_bytes(values), to.begin());
    return;
  }
  auto* const halves = reinterpret_cast<std::uint16_t*>(to.data());
  if (dtype == DType::bf16) return to_bf16(values, halves);
  constexpr float most = 65504;
  if (!(largest_magnitude(values) <= most)) {
    const float value = *std::ranges::find_if_not(values, [](float v) { return std::abs(v) <= most; });
    throw_claim(Fault::numeric, fmt::format("{}: float16 cannot hold the weight {}", name, value), std::string{name},
                "weights of at most 65504 in magnitude, the range of float16", fmt::format("{}", value),
                "use --quantization bfloat16");
  }
  std::ranges::transform(values, halves, f16_from_f32);
}

std::vector<std::byte> as_floats(std::span<const float> values, DType dtype, std::string_view name) {
  std::vector<std::byte> out(values.size() * size_of(dtype));
  to_floats(values, dtype, name, out);
  return out;
}

Int8Rows as_int8_rows(std::span<const float> values, std::size_t rows) {
  const std::size_t columns = values.size() / rows;
  Int8Rows out;
  out.codes.resize(values.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const float> row = values.subspan(r * columns, columns);
    const float largest = largest_magnitude(row);
    const float scale = largest == 0.0F ? 1.0F : 127.0F / std::max(largest, 127.0F / FLT_MAX);
    to_codes(row, scale, reinterpret_cast<std::int8_t*>(out.codes.data()) + r * columns);
    append(out.scales, scale);
  }
  return out;
}

float int16_scale(float largest) noexcept {
  return largest == 0.0F ? 1.0F : 1024.0F / std::max(largest, 1024.0F / FLT_MAX);
}

void to_int16(std::span<const float> values, float scale, MutableBytes to) noexcept {
  to_codes(values, scale, reinterpret_cast<std::int16_t*>(to.data()));
}

std::vector<float> sinusoids(std::int64_t positions, std::int64_t width, bool fairseq, std::int64_t first) {
  std::vector<float> table(static_cast<std::size_t>(positions * width));
  const std::int64_t half = width / 2, begin = first + (fairseq ? 2 : 0);
  const double columns = static_cast<double>(fairseq ? half - 1 : half);
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p + begin) * std::pow(10000.0, -static_cast<double>(i) / columns);
      table[static_cast<std::size_t>(p * width + i)] = static_cast<float>(std::sin(angle));
      table[static_cast<std::size_t>(p * width + half + i)] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

bool equal_as(DType type, std::span<const float> got, std::span<const float> wanted) noexcept {
  const float tolerance = type == DType::f32 ? 1e-5F : 0x1p-7F;  // bf16 rounds numbers below 1 by up to 2^-9
  return std::ranges::equal(got, wanted, [&](float a, float b) { return std::abs(a - b) <= tolerance; });
}

}  // namespace argosy::interchange
