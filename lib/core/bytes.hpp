#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// Bytes and element types for the torch-free half of the library (comm, checkpoint, soup, interchange). Everything
/// here is a view or a plain value; nothing owns memory.
namespace argosy {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

static_assert(std::endian::native == std::endian::little, "file formats are written in host order");

enum class DType : std::uint8_t { f32, bf16, f16, f64, i8, i16, i32, i64, u8, u16, u32, u64 };

[[nodiscard]] std::size_t size_of(DType dtype) noexcept;
[[nodiscard]] std::string_view name_of(DType dtype) noexcept;  // "f32", "bf16", …

/// bf16 is the upper half of an fp32. Rounds to nearest even; NaN stays NaN.
[[nodiscard]] inline std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
[[nodiscard]] inline float f32_from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Of a span, it is std::as_bytes.
[[nodiscard]] inline Bytes as_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span<const char>{text.data(), text.size()});
}

}  // namespace argosy

/// Marks a function that loops over elements: it is compiled for several instruction sets, and the loader takes the
/// widest that the processor has. Each lane must be an element, and code that adds products needs -ffp-contract=off:
/// then the result has the same bits in every version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ARGOSY_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ARGOSY_WIDEST
#endif
