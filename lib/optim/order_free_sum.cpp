#include "optim/order_free_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace argosy::optim {
namespace {

constexpr std::int64_t block = 128;     // elements; slices and pieces begin and end between blocks
constexpr int lowest_exponent = -1074;  // of the smallest double

}  // namespace

void OrderFreeSum::add(double term) {
  const auto bits = std::bit_cast<std::uint64_t>(term);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ffU);
  if (exponent == 0x7ff) {
    ++parts_.back();
    return;
  }
  ARGOSY_CHECK(term >= 0, "{} in a sum of squares", term);
  const std::uint64_t mantissa = (bits & 0xfffffffffffffU) | (exponent > 0 ? 1ULL << 52 : 0);
  const int shift = std::max(exponent, 1) - 1;  // in units of the smallest double
  const auto first = static_cast<std::size_t>(shift / 32);
  const int within = shift % 32;
  const std::uint64_t low = mantissa << within, high = within == 0 ? 0 : mantissa >> (64 - within);
  parts_[first] += static_cast<std::int64_t>(low & 0xffffffffU);
  parts_[first + 1] += static_cast<std::int64_t>(low >> 32);
  parts_[first + 2] += static_cast<std::int64_t>(high);
}

double OrderFreeSum::value() const {
  if (parts_.back() != 0) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  std::int64_t carry = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const std::int64_t digit = parts_[i] + carry;
    carry = digit >> 32;
    sum += std::ldexp(static_cast<double>(digit & 0xffffffff), static_cast<int>(32 * i) + lowest_exponent);
  }
  return sum;
}

void add_squares(std::span<const Piece> pieces, OrderFreeSum& sum) {
  for (const Piece& piece : pieces) {
    const at::Tensor gradient = piece.gradient.cpu().contiguous();
    const float* const values = gradient.const_data_ptr<float>();
    for (std::int64_t begin = 0; begin < gradient.numel(); begin += block) {
      double partial = 0;
      for (std::int64_t i = begin; i < std::min(begin + block, gradient.numel()); ++i)
        partial += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      sum.add(partial);
    }
  }
}

}  // namespace argosy::optim
