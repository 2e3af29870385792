#include "kernels/plain_random.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>

#include <array>
#include <vector>

#include "core/error.hpp"

namespace argosy::kernels::plain {
namespace {

constexpr std::int64_t word_mask = 0xffffffffLL;

/// Philox4x32-10 on int64 tensors that hold 32-bit words: products wrap modulo 2^64, which keeps both halves right.
std::array<at::Tensor, 4> philox(std::array<at::Tensor, 4> counter, std::int64_t key0, std::int64_t key1) {
  const auto high = [](const at::Tensor& product) { return product.__rshift__(32).bitwise_and(word_mask); };
  for (int round = 0; round < 10; ++round) {
    const at::Tensor product0 = counter[0] * 0xD2511F53LL, product1 = counter[2] * 0xCD9E8D57LL;
    counter = {high(product1).bitwise_xor(counter[1]).bitwise_xor(key0), product1.bitwise_and(word_mask),
               high(product0).bitwise_xor(counter[3]).bitwise_xor(key1), product0.bitwise_and(word_mask)};
    key0 = (key0 + 0x9E3779B9LL) & word_mask;
    key1 = (key1 + 0xBB67AE85LL) & word_mask;
  }
  return counter;
}

}  // namespace

at::Tensor random_halves(std::int64_t begin, std::int64_t n, std::uint64_t seed, std::int64_t second,
                         std::int64_t third, std::int64_t fourth, const at::Device& device) {
  ARGOSY_CHECK(begin % 128 == 0, "random halves from element {}", begin);
  const std::int64_t groups = (n + 127) / 128, first = begin / 8;
  const at::Tensor block = at::arange(first, first + groups * 16, at::TensorOptions().dtype(at::kLong).device(device));
  const auto constant = [&](std::int64_t value) { return at::full_like(block, value & word_mask); };
  const auto words = philox({block, constant(second), constant(third), constant(fourth)},
                            static_cast<std::int64_t>(seed) & word_mask, static_cast<std::int64_t>(seed >> 32));
  std::vector<at::Tensor> parts;
  for (const at::Tensor& word : words) {
    parts.push_back(word.bitwise_and(0xffff));
    parts.push_back(word.__rshift__(16));
  }
  return at::stack(parts).view({8, groups, 16}).transpose(0, 1).reshape({-1}).slice(0, 0, n);
}

}  // namespace argosy::kernels::plain
