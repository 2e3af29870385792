// Rotary positions in place: a block for each token, whose threads go over its heads.
#include "kernels/cuda/block.hpp"
#include "kernels/cuda/entries.hpp"

namespace argosy::kernels::cuda {

template <class T, int N>
struct RopeToken {
  RopeCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = block.index() / call.length, token = block.index() % call.length, half = call.half;
    const std::int64_t position = call.positions != nullptr ? call.positions[block.index()] : call.offset + token;
    T* const x = static_cast<T*>(call.x) + row * call.row_stride + token * call.token_stride;
    const float* const cosine = call.waves + position * 2 * half;
    const float sign = call.inverse ? -1.0F : 1.0F;
    const auto groups = static_cast<std::uint32_t>(half / N);  // of pairs; N divides
    const auto items = static_cast<std::uint32_t>(call.heads * groups),
               threads = static_cast<std::uint32_t>(block.threads());
    for (auto item = static_cast<std::uint32_t>(block.thread()); item < items; item += threads) {
      const std::int64_t i = item % groups * N;
      T* const first = x + item / groups * call.head_stride + i;
      float a[N], b[N], c[N], s[N], turned[N];
      read(first, a);
      read(first + half, b);
      read(cosine + i, c);
      read(cosine + half + i, s);
      for (int k = 0; k < N; ++k) turned[k] = a[k] * c[k] - b[k] * (sign * s[k]);
      write(first, turned);
      for (int k = 0; k < N; ++k) turned[k] = b[k] * c[k] + a[k] * (sign * s[k]);
      write(first + half, turned);
    }
  }
};

template <class Launch>
void start(const RopeCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(call.rows * call.length, threads_for(call.heads * call.half / A::count), 0,
               RopeToken<typename A::Type, A::count>{call});
      },
      Array{call.x, call.row_stride}, Array{call.x, call.token_stride}, Array{call.x, call.head_stride},
      Array{call.waves, call.half});
}

}  // namespace argosy::kernels::cuda
