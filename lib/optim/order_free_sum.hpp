#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "optim/optimizer.hpp"

/// A sum of non-negative doubles without rounding: the same bits in whatever order, and on however many ranks, terms
/// are added. Fixed point in 32-bit digits, each with room for 2^31 terms; parts add up over ranks as integers.
namespace argosy::optim {

class OrderFreeSum {
 public:
  /// term ≥ 0; one that is infinite or no number makes the sum no number.
  void add(double term);
  /// What ranks add up, element by element, to share the sum.
  [[nodiscard]] std::span<std::int64_t> parts() noexcept { return parts_; }
  [[nodiscard]] double value() const;

 private:
  static constexpr std::size_t digits = 68;       // of 32 bits, from 2^-1074 on: the largest double ends in the 66th
  std::array<std::int64_t, digits + 1> parts_{};  // last: terms that are no numbers
};

/// Adds the squares of the gradient shards: partial sums of 128 elements each, in order, in fp64. Waits for the device.
void add_squares(std::span<const Piece> pieces, OrderFreeSum& sum);

}  // namespace argosy::optim
