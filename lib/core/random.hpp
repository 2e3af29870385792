#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11). A value is a pure function of (key, counter), so
/// results do not depend on the number of ranks, the order of calls or resuming. A zero key and counter give 6627e8d5
/// e169c58d bc57ac4c 9b00dbd8.
namespace argosy {

using PhiloxBlock = std::array<std::uint32_t, 4>;

[[nodiscard]] PhiloxBlock philox(std::array<std::uint32_t, 2> key, PhiloxBlock counter) noexcept;

/// A stream of numbers identified by a seed and up to three coordinates (corpus, example, epoch …).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0);
  [[nodiscard]] std::uint32_t next_u32() noexcept;
  [[nodiscard]] std::uint64_t next_u64() noexcept;
  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double uniform() noexcept;
  /// Uniform in [0, n), unbiased; n > 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t n) noexcept;
  /// Any order, each as likely (Fisher-Yates).
  template <class Value>
  void shuffle(std::vector<Value>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }
  /// Standard normal (Box-Muller; two draws of uniform() each).
  [[nodiscard]] double normal() noexcept;

 private:
  std::array<std::uint32_t, 2> key_;
  PhiloxBlock counter_{}, block_{};
  unsigned used_ = 4;
};

/// A keyed permutation of 0..n-1 that stores no table: a Feistel network over Philox with cycle walking.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t stream);
  /// index < n → its image < n.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t index) const noexcept;

 private:
  std::uint64_t n_;
  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
  unsigned half_bits_;
};

/// `digits` hex digits from the system's source of randomness, different at each call; for names.
[[nodiscard]] std::string random_hex(std::size_t digits);

}  // namespace argosy
