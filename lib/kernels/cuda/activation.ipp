// Bias and activation, both ways: a block for each row.
#include "kernels/cuda/block.hpp"
#include "kernels/cuda/entries.hpp"

namespace argosy::kernels::cuda {

constexpr std::int64_t relu = 0, swish = 1, gelu = 2, swiglu = 3, geglu = 4;  // as spec::Activation
constexpr float root_half = 0.70710678118654752F, root_density = 0.39894228040143268F;
constexpr float tanh_slope = 1.59576912160573071F, tanh_cubic = 0.0713548162726008527F;  // 2·√(2/π), and ·0.044715

ARGOSY_DEVICE bool gates(std::int64_t kind) { return kind == swiglu || kind == geglu; }
/// For bf16 by the GPU's short instructions, whose error is far below bf16's.
template <class T>
ARGOSY_DEVICE float logistic(float u) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, Bf16>) {
    return __fdividef(1.0F, 1.0F + __expf(-u));
  } else {
    return 1.0F / (1.0F + std::exp(-u));
  }
#else
  return 1.0F / (1.0F + std::exp(-u));
#endif
}
/// Of gelu approximated by tanh, which is u·σ(2·√(2/π)·(u + 0.044715·u³)).
template <class T>
ARGOSY_DEVICE float logistic_of_gelu(float u) {
  return logistic<T>(u * std::fma(tanh_cubic * u, u, tanh_slope));
}

/// No product here has a sum that a compiler may fuse with it: the backward pass computes the same bits again.
template <class T>
ARGOSY_DEVICE float activated(float u, float up, std::int64_t kind) {
  if (kind == relu) return u > 0.0F || u != u ? u : 0.0F;
  if (kind == swish) return u * logistic<T>(u);
  if (kind == gelu) return 0.5F * u * (1.0F + std::erf(u * root_half));
  return u * (kind == swiglu ? logistic<T>(u) : logistic_of_gelu<T>(u)) * up;
}

/// The derivative by u, without `up`. For relu, u is what it gave.
template <class T>
ARGOSY_DEVICE float activation_slope(float u, std::int64_t kind) {
  if (kind == relu) return u > 0.0F ? 1.0F : 0.0F;
  if (kind == gelu) return 0.5F * (1.0F + std::erf(u * root_half)) + u * root_density * std::exp(-0.5F * u * u);
  const float s = kind == geglu ? logistic_of_gelu<T>(u) : logistic<T>(u);
  const float inner = kind == geglu ? tanh_slope + 3.0F * tanh_cubic * u * u : 1.0F;
  return s * (1.0F + u * (1.0F - s) * inner);
}

template <class T, int N>
struct ActivationRow {
  ActivationCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = block.index(), width = call.width, kind = call.kind, parts = gates(kind) ? 2 : 1;
    T* const u = static_cast<T*>(call.u) + row * parts * width;
    T* const y = static_cast<T*>(call.y) + row * width;
    const T* const bias = static_cast<const T*>(call.bias);
    each<N>(block, width, [&](auto count, std::int64_t i) {
      constexpr int n = decltype(count)::value;
      float values[2][n] = {};
      for (int part = 0; part < 2; ++part) {  // a loop of a known length, so that values stay in registers
        if (part >= parts) break;
        const std::int64_t at = part * width + i;
        read(u + at, values[part]);
        if (bias == nullptr) continue;
        float shift[n];
        read(bias + at, shift);
        for (int k = 0; k < n; ++k) values[part][k] += shift[k];
        if (kind == relu) continue;  // which saves what it gives
        for (int k = 0; k < n; ++k) values[part][k] = widened(rounded<T>(values[part][k]));
        write(u + at, values[part]);
      }
      for (int k = 0; k < n; ++k) values[0][k] = activated<T>(values[0][k], values[1][k], kind);
      write(y + i, values[0]);
    });
  }
};

template <class T, int N>
struct ActivationBackwardRow {
  ActivationBackwardCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = block.index(), width = call.width, kind = call.kind, parts = gates(kind) ? 2 : 1;
    const T* const dy = static_cast<const T*>(call.dy) + row * width;
    const T* const saved = static_cast<const T*>(call.saved) + row * parts * width;
    T* const du = static_cast<T*>(call.du) + row * parts * width;
    T* const again = call.again != nullptr ? static_cast<T*>(call.again) + row * width : nullptr;
    each<N>(block, width, [&](auto count, std::int64_t i) {
      constexpr int n = decltype(count)::value;
      float gradient[n], u[n], up[n] = {}, out[n];
      read(dy + i, gradient);
      read(saved + i, u);
      if (parts == 2) read(saved + width + i, up);
      if (again != nullptr) {
        for (int k = 0; k < n; ++k) out[k] = activated<T>(u[k], up[k], kind);
        write(again + i, out);
      }
      for (int k = 0; k < n; ++k) out[k] = gradient[k] * activation_slope<T>(u[k], kind) * (parts == 2 ? up[k] : 1.0F);
      write(du + i, out);
      if (parts == 1) return;
      for (int k = 0; k < n; ++k) out[k] = gradient[k] * activated<T>(u[k], 1.0F, kind);
      write(du + width + i, out);
    });
  }
};

template <class Launch>
void start(const ActivationCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(call.rows, threads_for(call.width / A::count), 0, ActivationRow<typename A::Type, A::count>{call});
      },
      Array{call.u, call.width}, Array{call.y, call.width}, Array{call.bias});
}

template <class Launch>
void start(const ActivationBackwardCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(call.rows, threads_for(call.width / A::count), 0,
               ActivationBackwardRow<typename A::Type, A::count>{call});
      },
      Array{call.dy, call.width}, Array{call.saved, call.width}, Array{call.du, call.width}, Array{call.again});
}

}  // namespace argosy::kernels::cuda
