#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "optim/optimizer.hpp"

/// A sum of non-negative doubles without rounding: its bits depend neither on the order of the terms nor on the number
/// of ranks. Fixed point in 32-bit digits, each with room for 2^31 terms; ranks add their parts as integers.
namespace argosy::optim {

class OrderFreeSum {
 public:
  /// term ≥ 0. A term that is infinite or NaN makes the sum NaN.
  void add(double term);
  /// The integers that ranks add up, element by element, to get the common sum.
  [[nodiscard]] std::span<std::int64_t> parts() noexcept { return parts_; }
  [[nodiscard]] double value() const;

 private:
  static constexpr std::size_t digits = 68;       // of 32 bits, from 2^-1074 on: the largest double ends in the 66th
  std::array<std::int64_t, digits + 1> parts_{};  // last: number of terms that are not finite
};

/// Adds the squares of the gradient shards: partial sums of 128 elements each, in order, in fp64. Waits for the device.
void add_squares(std::span<const Piece> pieces, OrderFreeSum& sum);

}  // namespace argosy::optim
