// Dropout with bias and residual add, noise, and running means of weights: a block for each part of the elements.
#include <Random123/philox.h>

#include "kernels/cuda/block.hpp"
#include "kernels/cuda/entries.hpp"

namespace argosy::kernels::cuda {

constexpr int elementwise_threads = 256;
constexpr std::int64_t elementwise_part = 8 * elementwise_threads;  // elements of a block

/// Leaves in `halves` [elementwise_part] of shared memory the random half of each element of the block. Eight elements
/// share a Philox block, 16 apart.
template <class Block>
ARGOSY_DEVICE void draw_halves(const Block& block, const RandomCounter& of, std::uint16_t* halves) {
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto group = static_cast<std::uint64_t>(block.index() * elementwise_threads + block.thread());
  const r123::Philox4x32::ctr_type words =
      r123::Philox4x32{}({{low(group), of.site, of.step, of.micro_batch}}, {{low(of.seed), low(of.seed >> 32)}});
  std::uint16_t* const to = halves + block.thread() / 16 * 128 + block.thread() % 16;
  for (int k = 0; k < 8; ++k)
    to[16 * k] = static_cast<std::uint16_t>(words[static_cast<unsigned>(k / 2)] >> 16 * (k % 2));
  block.wait();
}

template <class T, int N>
struct DropoutAddPart {
  DropoutAddCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    auto* const halves = reinterpret_cast<std::uint16_t*>(block.shared());
    if (call.threshold > 0) draw_halves(block, call.random, halves);
    const std::int64_t begin = block.index() * elementwise_part, left = call.n - begin;
    each<N>(block, left < elementwise_part ? left : elementwise_part, [&](auto count, std::int64_t at) {
      constexpr int n = decltype(count)::value;
      const std::int64_t i = begin + at;
      float value[n], other[n];
      read(static_cast<const T*>(call.branch) + i, value);
      if (call.bias != nullptr) {
        read(static_cast<const T*>(call.bias) + i % call.width, other);
        for (int k = 0; k < n; ++k) value[k] += other[k];
      }
      if (call.threshold > 0) {
        for (int k = 0; k < n; ++k) value[k] *= halves[at + k] >= call.threshold ? call.scale : 0.0F;
      }
      if (call.base != nullptr) {
        read(static_cast<const T*>(call.base) + i, other);
        for (int k = 0; k < n; ++k) value[k] += other[k];
      }
      write(static_cast<T*>(call.y) + i, value);
    });
  }
};

template <class T, int N>
struct NoisePart {
  AddNoiseCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    auto* const halves = reinterpret_cast<std::uint16_t*>(block.shared());
    draw_halves(block, call.random, halves);
    const std::int64_t begin = block.index() * elementwise_part, left = call.n - begin;
    each<N>(block, left < elementwise_part ? left : elementwise_part, [&](auto count, std::int64_t at) {
      constexpr int n = decltype(count)::value;
      T* const x = static_cast<T*>(call.x) + begin + at;
      const float scale = call.scales[(begin + at) / call.width];
      float value[n];
      read(x, value);
      for (int k = 0; k < n; ++k)
        value[k] += ((static_cast<float>(halves[at + k]) + 0.5F) * (1.0F / 32768) - 1) * scale;
      write(x, value);
    });
  }
};

template <int N>
struct EmaPart {
  EmaCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    if (*call.coefficient < 0) return;
    const std::int64_t begin = block.index() * elementwise_part, left = call.n - begin;
    each<N>(block, left < elementwise_part ? left : elementwise_part, [&](auto count, std::int64_t at) {
      constexpr int n = decltype(count)::value;
      float mean[n], value[n];
      read(call.mean + begin + at, mean);
      read(call.values + begin + at, value);
      for (int k = 0; k < n; ++k) mean[k] += call.rate * (value[k] - mean[k]);
      write(call.mean + begin + at, mean);
    });
  }
};

constexpr std::int64_t elementwise_blocks(std::int64_t n) { return (n + elementwise_part - 1) / elementwise_part; }

template <class Launch>
void start(const DropoutAddCall& call, Launch& launch) {
  const std::int64_t shared = call.threshold > 0 ? elementwise_part * 2 : 0;
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(elementwise_blocks(call.n), elementwise_threads, shared,
               DropoutAddPart<typename A::Type, A::count>{call});
      },
      Array{call.base}, Array{call.branch}, Array{call.y}, Array{call.bias, call.bias != nullptr ? call.width : 0});
}

template <class Launch>
void start(const AddNoiseCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(elementwise_blocks(call.n), elementwise_threads, elementwise_part * 2,
               NoisePart<typename A::Type, A::count>{call});
      },
      Array{call.x, call.width});
}

template <class Launch>
void start(const EmaCall& call, Launch& launch) {
  with_access(
      false,
      [&](auto access) {
        using A = decltype(access);
        if constexpr (std::is_same_v<typename A::Type, float>)
          launch(elementwise_blocks(call.n), elementwise_threads, 0, EmaPart<A::count>{call});
      },
      Array{call.mean}, Array{call.values});
}

}  // namespace argosy::kernels::cuda
