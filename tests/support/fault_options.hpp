#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

/// What the environment asks of a fault test: how many cases, and which.
namespace argosy::test {

/// Under a sanitizer, which slows calls and forks down several times, fewer cases run: the plain build runs them all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

/// `count` times ARGOSY_FAULT_SCALE (1), at least one.
inline int scaled(int count) {
  const char* const scale = std::getenv("ARGOSY_FAULT_SCALE");
  return std::max(1, static_cast<int>(std::lround(count * (scale == nullptr ? 1 : std::atof(scale)))));
}

/// ARGOSY_FAULT_SEED, which repeats what a failure has printed.
inline std::uint64_t fault_seed(std::uint64_t otherwise) {
  const char* const seed = std::getenv("ARGOSY_FAULT_SEED");
  return seed == nullptr ? otherwise : std::strtoull(seed, nullptr, 10);
}

}  // namespace argosy::test
