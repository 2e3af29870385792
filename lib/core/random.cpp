#include "core/random.hpp"

#include <Random123/philox.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

namespace argosy {
namespace {

constexpr std::uint32_t low(std::uint64_t value) noexcept { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high(std::uint64_t value) noexcept { return static_cast<std::uint32_t>(value >> 32); }
__extension__ using Wide = unsigned __int128;

}  // namespace

PhiloxBlock philox(std::array<std::uint32_t, 2> key, PhiloxBlock counter) noexcept {
  const r123::Philox4x32::ctr_type in{{counter[0], counter[1], counter[2], counter[3]}};
  const r123::Philox4x32::key_type with{{key[0], key[1]}};
  const auto out = r123::Philox4x32{}(in, with);
  return {out[0], out[1], out[2], out[3]};
}

// The 256 bits of (seed, a, b, c) are folded by two blocks into a key and the upper half of the counter; the lower half
// counts.
RandomStream::RandomStream(std::uint64_t seed, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const PhiloxBlock first = philox({low(seed), high(seed)}, {low(a), high(a), low(b), high(b)});
  const PhiloxBlock second = philox({first[0], first[1]}, {first[2], first[3], low(c), high(c)});
  key_ = {second[0], second[1]};
  counter_ = {0, 0, second[2], second[3]};
}

std::uint32_t RandomStream::next_u32() noexcept {
  if (used_ == block_.size()) {
    block_ = philox(key_, counter_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[used_++];
}

std::uint64_t RandomStream::next_u64() noexcept {
  const std::uint64_t lower = next_u32();
  return static_cast<std::uint64_t>(next_u32()) << 32 | lower;
}

double RandomStream::uniform() noexcept { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

// Lemire, "Fast random integer generation in an interval" (2019).
std::uint64_t RandomStream::below(std::uint64_t n) noexcept {
  Wide product = static_cast<Wide>(next_u64()) * n;
  if (static_cast<std::uint64_t>(product) < n) {
    const std::uint64_t unfair = (0 - n) % n;
    while (static_cast<std::uint64_t>(product) < unfair) product = static_cast<Wide>(next_u64()) * n;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double RandomStream::normal() noexcept {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t stream)
    : n_(n), key_{low(seed), high(seed)}, stream_(stream), half_bits_(1) {
  const auto bits = static_cast<unsigned>(std::bit_width(n > 0 ? n - 1 : 0));
  if (bits > 2) half_bits_ = (bits + 1) / 2;
}

// The domain 4^half_bits is less than 4 n, so cycle walking needs fewer than four walks on average.
std::uint64_t Permutation::operator()(std::uint64_t index) const noexcept {
  constexpr std::uint32_t rounds = 6;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = index >> half_bits_, right = index & mask;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const std::uint32_t mixed = philox(key_, {low(right), round, low(stream_), high(stream_)})[0];
      left = std::exchange(right, left ^ (mixed & mask));
    }
    index = left << half_bits_ | right;
  } while (index >= n_);
  return index;
}

std::string random_hex(std::size_t digits) {
  std::random_device random;
  std::string text;
  while (text.size() < digits) text += fmt::format("{:08x}", random());
  text.resize(digits);
  return text;
}

}  // namespace argosy
