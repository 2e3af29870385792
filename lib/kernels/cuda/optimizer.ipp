// AdamW over flat slices, and sums of squares in two stages.
#include <Random123/philox.h>

#include "kernels/cuda/block.hpp"
#include "kernels/cuda/entries.hpp"
#include "kernels/stochastic.hpp"

namespace argosy::kernels::cuda {

/// Changes the moments of an element and returns its new value.
ARGOSY_DEVICE float adamw_step(const AdamwFactors& f, float value, float& m, float& v, float g) {
  m = m * f.beta1 + g * f.new_m;
  v = v * f.beta2 + g * g * f.new_v;
  return value * f.keep - f.rate * m / (std::sqrt(v * f.spread) + f.epsilon);
}

constexpr std::int64_t adamw_part = 1024;  // elements of a block

template <int N>
struct AdamwPart {
  AdamwCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const float clip = *call.coefficient;
    if (clip < 0) return;
    const std::int64_t begin = block.index() * adamw_part, left = call.n - begin;
    each<N>(block, left < adamw_part ? left : adamw_part, [&](auto count, std::int64_t at) {
      constexpr int n = decltype(count)::value;
      const std::int64_t i = begin + at;
      float value[n], m[n], v[n], gradient[n];
      read(call.master + i, value);
      read(call.m + i, m);
      read(call.v + i, v);
      read(call.gradient + i, gradient);
      for (int k = 0; k < n; ++k) value[k] = adamw_step(call.factors, value[k], m[k], v[k], gradient[k] * clip);
      write(call.master + i, value);
      write(call.m + i, m);
      write(call.v + i, v);
      if (call.weights != nullptr) write(static_cast<Bf16*>(call.weights) + i, value);
    });
  }
};

/// A thread has the eight elements that share Philox block begin/8 + its number: 16 apart, two for each word.
struct AdamwStochasticPart {
  AdamwStochasticCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const float clip = *call.coefficient;
    if (clip < 0) return;
    const std::int64_t group = block.index() * block.threads() + block.thread(), first = group / 16 * 128 + group % 16;
    if (first >= call.n) return;
    const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
    const r123::Philox4x32::ctr_type counter{
        {low(static_cast<std::uint64_t>(call.begin / 8 + group)), call.parameter, call.step, rounding_domain}};
    const r123::Philox4x32::key_type key{{low(call.seed), low(call.seed >> 32)}};
    const r123::Philox4x32::ctr_type words = r123::Philox4x32{}(counter, key);
    for (int k = 0; k < 8; ++k) {
      const std::int64_t i = first + 16 * k;
      if (i >= call.n) return;
      const float value =
          adamw_step(call.factors, widened(Bf16{call.weights[i]}), call.m[i], call.v[i], call.gradient[i] * clip);
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      const std::uint32_t r = words[static_cast<unsigned>(k / 2)] >> (16 * (k % 2));
      call.weights[i] = static_cast<std::uint16_t>(round_stochastically(bits, r) >> 16);
    }
  }
};

template <int N>
struct SquaresPart {
  const float* x;
  double* parts;
  std::int64_t n;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t begin = block.index() * square_part, left = n - begin;
    double sum[1] = {0};
    each<N>(block, left < square_part ? left : square_part, [&](auto count, std::int64_t i) {
      float values[decltype(count)::value];
      read(x + begin + i, values);
      for (const float value : values) sum[0] += static_cast<double>(value) * static_cast<double>(value);
    });
    totals(block, sum, reinterpret_cast<double*>(block.shared()));
    if (block.thread() == 0) parts[block.index()] = sum[0];
  }
};

/// One block. Thread t sums rows t, t + threads, …
struct RowSums {
  RowSumsCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    double sums[5] = {};
    for (std::int64_t row = block.thread(); row < call.rows; row += block.threads()) {
      for (int k = 0; k < 5; ++k) {
        if (k < call.columns) sums[k] += call.values[row * call.columns + k];
      }
    }
    totals(block, sums, reinterpret_cast<double*>(block.shared()));
    for (int k = 0; k < 5; ++k) {
      if (block.thread() == 0 && k < call.columns) call.sums[k] = sums[k];
    }
  }
};

template <class Launch>
void start(const AdamwCall& call, Launch& launch) {
  const std::int64_t blocks = (call.n + adamw_part - 1) / adamw_part;
  with_access(
      false,
      [&](auto access) {
        using A = decltype(access);
        if constexpr (std::is_same_v<typename A::Type, float>) launch(blocks, 256, 0, AdamwPart<A::count>{call});
      },
      Array{call.master}, Array{call.m}, Array{call.v}, Array{call.gradient}, Array{call.weights});
}

template <class Launch>
void start(const AdamwStochasticCall& call, Launch& launch) {
  const std::int64_t threads = (call.n + 127) / 128 * 16;
  launch((threads + 255) / 256, 256, 0, AdamwStochasticPart{call});
}

template <class Launch>
void start(const RowSumsCall& call, Launch& launch) {
  launch(1, 256, 5 * most_warps * 8, RowSums{call});
}

template <class Launch>
void start(const SumOfSquaresCall& call, Launch& launch) {
  const std::int64_t parts = square_parts(call.n);
  if (reinterpret_cast<std::uintptr_t>(call.x) % 16 == 0) {
    launch(parts, 256, most_warps * 8, SquaresPart<4>{call.x, call.parts, call.n});
  } else {
    launch(parts, 256, most_warps * 8, SquaresPart<1>{call.x, call.parts, call.n});
  }
  start(RowSumsCall{call.parts, call.sum, parts, 1}, launch);
}

}  // namespace argosy::kernels::cuda
