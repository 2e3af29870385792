#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// The random numbers of the kernels, for the plain references. For .cpp files of this module.
namespace argosy::kernels::plain {

/// 16-bit numbers, int64 [n], of the elements from `begin` (a multiple of 128) on: element 128·g + 16·k + lane is half
/// k%2 of word k/2 of Philox4x32-10 with key `seed` and counter (16·g + lane, second, third, fourth).
[[nodiscard]] at::Tensor random_halves(std::int64_t begin, std::int64_t n, std::uint64_t seed, std::int64_t second,
                                       std::int64_t third, std::int64_t fourth, const at::Device& device);

}  // namespace argosy::kernels::plain
