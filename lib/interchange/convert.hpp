#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"

/// Converts fp32 weights to the element types of foreign formats.
namespace argosy::interchange {

/// The bytes of a number, at the end of `to`.
template <class T>
void append(std::vector<std::byte>& to, T value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// `values` as `dtype` (f32, bf16, f16), rounded to nearest even, in `to`. Throws Error{numeric}, which names `name`,
/// when f16 cannot hold a value.
void to_floats(std::span<const float> values, DType dtype, std::string_view name, MutableBytes to);
[[nodiscard]] std::vector<std::byte> as_floats(std::span<const float> values, DType dtype, std::string_view name);

/// Rows as int8 with one scale per row: scale = 127/max|w| (1 for a zero row), q = round-half-even(w·scale).
struct Int8Rows {
  std::vector<std::byte> codes;   // [rows, columns]
  std::vector<std::byte> scales;  // f32 [rows]
};
[[nodiscard]] Int8Rows as_int8_rows(std::span<const float> values, std::size_t rows);

/// int16 with one scale for a matrix: scale = 1024/max|w| (1 for zeros), q = round-half-even(w·scale).
[[nodiscard]] float int16_scale(float largest) noexcept;
void to_int16(std::span<const float> values, float scale, MutableBytes to) noexcept;
[[nodiscard]] float largest_magnitude(std::span<const float> values) noexcept;

[[nodiscard]] std::uint16_t f16_from_f32(float value) noexcept;  // IEEE 754 binary16, round to nearest even
[[nodiscard]] float f32_from_f16(std::uint16_t bits) noexcept;

/// [positions, width], from position `first` on: the sine in the first half of the columns, the cosine in the second,
/// computed in fp64. fairseq: as M2M-100 computes them (spec::Position::sinusoidal_fairseq).
[[nodiscard]] std::vector<float> sinusoids(std::int64_t positions, std::int64_t width, bool fairseq = false,
                                           std::int64_t first = 0);

/// Whether `got`, which was read as `type`, has the numbers of `wanted`, which are at most 1, up to rounding.
[[nodiscard]] bool equal_as(DType type, std::span<const float> got, std::span<const float> wanted) noexcept;

}  // namespace argosy::interchange
