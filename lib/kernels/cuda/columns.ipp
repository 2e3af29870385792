// Sums over rows in two stages: parts of the rows, then the parts in order. No atomics: the order depends on the shape
// alone.
#include <algorithm>

#include "kernels/cuda/block.hpp"
#include "kernels/cuda/entries.hpp"

namespace argosy::kernels::cuda {

/// Sums parts of the rows of x; the sums of part p are written to out + p·width. Warps take turns at rows, each of
/// their lanes has N columns. Shared memory: most_warps · 32·N numbers.
template <class T, int N>
struct ColumnSums {
  const T* x;
  float* out;
  std::int64_t rows, width, stride, part_rows, tiles;
  bool accumulate;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    constexpr int tile = 32 * N;
    const std::int64_t first = block.index() % tiles * tile, part = block.index() / tiles;
    const int lane = block.thread() % 32, warp = block.thread() / 32, warps = block.threads() / 32;
    const std::int64_t column = first + lane * N, end = rows < (part + 1) * part_rows ? rows : (part + 1) * part_rows;
    float sums[N] = {};
    for (std::int64_t row = part * part_rows + warp; row < end; row += warps) {
      const T* const from = x + row * stride + column;
      float values[N];
      if (column + N <= width) {
        read(from, values);
        for (int k = 0; k < N; ++k) sums[k] += values[k];
      } else {
        for (int k = 0; k < N; ++k) {
          if (column + k < width) sums[k] += widened(from[k]);
        }
      }
    }
    float* const room = block.shared();
    for (int k = 0; k < N; ++k) room[warp * tile + lane * N + k] = sums[k];
    block.wait();
    for (int c = block.thread(); c < tile && first + c < width; c += block.threads()) {
      float sum = room[c];
      for (int w = 1; w < warps; ++w) sum += room[w * tile + c];
      float* const to = out + part * width + first + c;
      *to = accumulate ? *to + sum : sum;
    }
  }
};

/// Adds up parts [count, width], whose rows are `stride` numbers apart, in `out`.
template <class Launch>
void fold_parts(const float* parts, std::int64_t count, std::int64_t width, std::int64_t stride, float* out,
                bool accumulate, Launch& launch) {
  const std::int64_t tiles = (width + 31) / 32;
  launch(tiles, threads_for(count * 32), most_warps * 32 * 4,
         ColumnSums<float, 1>{parts, out, count, width, stride, count, tiles, accumulate});
}

template <class Launch>
void start(const ColumnSumCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using T = typename decltype(access)::Type;
        constexpr int n = decltype(access)::count;
        const std::int64_t tiles = (call.width + 32 * n - 1) / (32 * n), parts = column_parts(call.rows),
                           part_rows = parts > 0 ? (call.rows + parts - 1) / parts : 0;
        launch(tiles * parts, threads_for(part_rows * 32), most_warps * 32 * n * 4,
               ColumnSums<T, n>{static_cast<const T*>(call.x), call.parts, call.rows, call.width, call.stride,
                                part_rows, tiles, false});
        fold_parts(call.parts, parts, call.width, call.width, call.out, call.accumulate, launch);
      },
      Array{call.x, call.stride});
}

}  // namespace argosy::kernels::cuda
