#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define ARGOSY_EVERYWHERE __host__ __device__
#else
#define ARGOSY_EVERYWHERE [[gnu::always_inline]]
#endif

/// Stochastic rounding from fp32 to bf16, for all backends of the optimizer. The probability of rounding up is given by
/// the bits that are cut off, so that the mean of many roundings is the number itself (arXiv:2010.06192). Torch-free.
namespace argosy::kernels {

/// The last counter word of the random numbers for rounding. For dropout, that word is the micro-batch, which is never
/// negative, so the two never use the same numbers.
inline constexpr std::uint32_t rounding_domain = 0xffffffffU;

/// Takes the bits of an fp32 number and returns those of the bf16 number above or below it, with a zero low half. The
/// low 16 bits of `r` decide. Infinities and NaN stay unchanged; a finite number never becomes infinite.
ARGOSY_EVERYWHERE constexpr std::uint32_t round_stochastically(std::uint32_t bits, std::uint32_t r) {
  constexpr std::uint32_t exponent = 0x7f800000U, kept = 0xffff0000U, quiet = 0x00400000U;
  const std::uint32_t down = bits & kept, rounded = (bits + (r & 0xffffU)) & kept;
  const std::uint32_t finite = (rounded & exponent) == exponent ? down : rounded;
  const std::uint32_t odd = (bits & ~kept) != 0 || (bits & 0x007f0000U) != 0 ? down | quiet : down;
  return (bits & exponent) == exponent ? odd : finite;
}

}  // namespace argosy::kernels
