#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#define ARGOSY_DEVICE __device__ __forceinline__
#else
#define ARGOSY_DEVICE inline
#endif

/// What kernels are written with. A kernel is a struct whose operator()(const Block&) is the work of one thread; its
/// file also has a function start(call, launch), which chooses blocks, threads and shared memory. On a GPU, Block is
/// CudaBlock of kernels.cu. Tests run the same code on the host with an emulated block. Blocks have a multiple of 32
/// threads, at most 256. Torch-free.
///
/// block.thread(), block.threads(), block.index(): of the thread in its block, and of the block in the launch.
/// block.shared(): the block's shared memory. block.wait(): until all threads of the block are there.
/// block.shuffled(value, mask): the value of the thread whose place in the warp is that of this one xor `mask`.
namespace argosy::kernels::cuda {

struct Bf16 {
  std::uint16_t bits;
};

ARGOSY_DEVICE float widened(float value) { return value; }
ARGOSY_DEVICE float widened(Bf16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

/// The nearest number of that type; of two, the even one.
template <class T>
ARGOSY_DEVICE T rounded(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
#if defined(__CUDA_ARCH__)
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};  // one instruction
#else
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return {static_cast<std::uint16_t>((nan ? bits | 0x400000U : bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
#endif
  }
}

/// The bytes that one instruction moves. Their address must be a multiple of their number.
template <int bytes>
struct Moved {
#if defined(__CUDACC__)
  using Type = std::conditional_t<
      bytes == 16, uint4,
      std::conditional_t<bytes == 8, uint2, std::conditional_t<bytes == 4, unsigned, unsigned short>>>;
#else
  struct alignas(bytes) Type {
    unsigned char each[bytes];
  };
#endif
};
ARGOSY_DEVICE void check_alignment([[maybe_unused]] const void* place, [[maybe_unused]] std::uintptr_t bytes) {
#if !defined(__CUDACC__)
  if (reinterpret_cast<std::uintptr_t>(place) % bytes != 0) __builtin_trap();  // as on a GPU
#endif
}

/// Reads N elements, 16 bytes at a time where there are as many.
template <int N, class T>
ARGOSY_DEVICE void read(const T* from, float (&to)[N]) {
  constexpr int bytes = N * sizeof(T), at_once = bytes < 16 ? bytes : 16;
  T values[N];
  using Move = typename Moved<at_once>::Type;
  for (int k = 0; k < bytes / at_once; ++k) {
    check_alignment(from, at_once);
    const Move moved = reinterpret_cast<const Move*>(from)[k];
    std::memcpy(reinterpret_cast<char*>(values) + k * at_once, &moved, at_once);
  }
  for (int k = 0; k < N; ++k) to[k] = widened(values[k]);
}

/// Rounds and writes N elements likewise.
template <int N, class T>
ARGOSY_DEVICE void write(T* to, const float (&from)[N]) {
  constexpr int bytes = N * sizeof(T), at_once = bytes < 16 ? bytes : 16;
  T values[N];
  for (int k = 0; k < N; ++k) values[k] = rounded<T>(from[k]);
  using Move = typename Moved<at_once>::Type;
  for (int k = 0; k < bytes / at_once; ++k) {
    check_alignment(to, at_once);
    Move moved;
    std::memcpy(&moved, reinterpret_cast<const char*>(values) + k * at_once, at_once);
    reinterpret_cast<Move*>(to)[k] = moved;
  }
}

template <int N>
using Count = std::integral_constant<int, N>;

/// Calls f(Count<N>, i) for each whole group of N elements below `width` that is this thread's, and f(Count<1>, i) for
/// its share of the elements that are left. A thread always has the same elements.
template <int N, class Block, class Function>
ARGOSY_DEVICE void each(const Block& block, std::int64_t width, Function&& f) {
  const std::int64_t thread = block.thread(), threads = block.threads();
  for (std::int64_t i = thread * N; i + N <= width; i += threads * N) f(Count<N>{}, i);
  if constexpr (N > 1) {
    for (std::int64_t i = width / N * N + thread; i < width; i += threads) f(Count<1>{}, i);
  }
}

/// Room in shared memory that totals() needs for each number.
constexpr int most_warps = 8;

/// Replaces each of the N numbers by its sum over the threads of the block, in an order that depends on the number of
/// threads alone. room: N·most_warps numbers of shared memory.
template <int N, class Number, class Block>
ARGOSY_DEVICE void totals(const Block& block, Number (&values)[N], Number* room) {
  const int warp = block.thread() / 32, warps = block.threads() / 32;
  for (int k = 0; k < N; ++k) {
    for (int mask = 16; mask > 0; mask /= 2) values[k] += block.shuffled(values[k], mask);
    if (block.thread() % 32 == 0) room[k * most_warps + warp] = values[k];
  }
  block.wait();
  for (int k = 0; k < N; ++k) {
    values[k] = room[k * most_warps];
    for (int w = 1; w < warps; ++w) values[k] += room[k * most_warps + w];
  }
  block.wait();  // the room may be written again
}

/// Threads of a block that works on that many items: whole warps.
constexpr int threads_for(std::int64_t items) {
  return items >= most_warps * 32 ? most_warps * 32 : items <= 32 ? 32 : static_cast<int>((items + 31) / 32 * 32);
}

/// Elements of T that are moved at once.
template <class T, int N>
struct Access {
  using Type = T;
  static constexpr int count = N;
};

/// Whether an array begins at a multiple of 16 bytes and so do its rows, which are `stride` elements apart.
struct Array {
  const void* begin;
  std::int64_t stride = 0;
};

/// Calls f(Access) for the type, with 16 bytes at once if all arrays of that type allow it, otherwise one element.
template <class Function, class... Arrays>
void with_access(bool bf16, Function&& f, const Arrays&... arrays) {
  const auto allows = [bf16](const Array& array) {
    return reinterpret_cast<std::uintptr_t>(array.begin) % 16 == 0 && array.stride % (bf16 ? 8 : 4) == 0;
  };
  const bool wide = (allows(arrays) && ...);
  if (bf16) {
    wide ? f(Access<Bf16, 8>{}) : f(Access<Bf16, 1>{});
  } else {
    wide ? f(Access<float, 4>{}) : f(Access<float, 1>{});
  }
}

}  // namespace argosy::kernels::cuda
