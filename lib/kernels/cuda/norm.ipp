// LayerNorm and RMSNorm. Forward: a block for each row. Backward: a block for each part of the rows, which also sums
// its share of the gradient of the weights.
#include "kernels/cuda/columns.ipp"

namespace argosy::kernels::cuda {

template <class T, int N>
struct NormRow {
  NormCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = block.index(), width = call.width;
    const T* const x = static_cast<const T*>(call.x) + row * width;
    const T* const weight = static_cast<const T*>(call.weight);
    const T* const bias = static_cast<const T*>(call.bias);
    T* const y = static_cast<T*>(call.y) + row * width;
    const float inverse = 1.0F / static_cast<float>(width);
    float sum[1] = {0}, square[1] = {0};
    if (call.mean != nullptr) {
      each<N>(block, width, [&](auto count, std::int64_t i) {
        float values[decltype(count)::value];
        read(x + i, values);
        for (const float value : values) sum[0] += value;
      });
      totals(block, sum, block.shared());
    }
    const float centre = sum[0] * inverse;
    each<N>(block, width, [&](auto count, std::int64_t i) {
      float values[decltype(count)::value];
      read(x + i, values);
      for (const float value : values) square[0] += (value - centre) * (value - centre);
    });
    totals(block, square, block.shared());
    const float r = 1.0F / std::sqrt(square[0] * inverse + call.epsilon);
    if (block.thread() == 0) {
      if (call.mean != nullptr) call.mean[row] = centre;
      call.rstd[row] = r;
    }
    each<N>(block, width, [&](auto count, std::int64_t i) {
      constexpr int n = decltype(count)::value;
      float values[n], scale[n], shift[n] = {};
      read(x + i, values);
      read(weight + i, scale);
      if (bias != nullptr) read(bias + i, shift);
      for (int k = 0; k < n; ++k) values[k] = (values[k] - centre) * r * scale[k] + shift[k];
      write(y + i, values);
    });
  }
};

/// A block has a part of the rows. The sums of a thread's columns stay in shared memory if they fit there.
template <class T, int N>
struct NormBackwardRows {
  NormBackwardCall call;
  std::int64_t kinds;         // of sums: none, those for dweight, those for dweight and dbias
  std::int64_t rows, longer;  // of a part; that many parts at the beginning have one more
  bool sums_in_shared;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t part = block.index(), width = call.width;
    const T* const weight = static_cast<const T*>(call.weight);
    const float inverse = 1.0F / static_cast<float>(width);
    float* const own = call.parts + part * kinds * width;
    float* const sums = sums_in_shared ? block.shared() + 2 * most_warps : own;
    each<N>(block, kinds > 0 ? width : 0, [&](auto count, std::int64_t i) {
      const float zeros[decltype(count)::value] = {};
      for (std::int64_t k = 0; k < kinds; ++k) write(sums + k * width + i, zeros);
    });
    const std::int64_t first = part * rows + (part < longer ? part : longer),
                       end = first + rows + (part < longer ? 1 : 0);
    for (std::int64_t row = first; row < end; ++row) {
      const T* const dy = static_cast<const T*>(call.dy) + row * width;
      const T* const x = static_cast<const T*>(call.x) + row * width;
      const T* const add = call.add != nullptr ? static_cast<const T*>(call.add) + row * width : nullptr;
      T* const dx = static_cast<T*>(call.dx) + row * width;
      const float centre = call.mean != nullptr ? call.mean[row] : 0.0F, r = call.rstd[row];
      float along[2] = {0, 0};  // Σ scaled·normed, Σ scaled
      each<N>(block, width, [&](auto count, std::int64_t i) {
        constexpr int n = decltype(count)::value;
        float gradient[n], normed[n], scale[n];
        read(dy + i, gradient);
        read(x + i, normed);
        read(weight + i, scale);
        for (int k = 0; k < n; ++k) {
          normed[k] = (normed[k] - centre) * r;
          along[0] += gradient[k] * scale[k] * normed[k];
          along[1] += gradient[k] * scale[k];
          normed[k] *= gradient[k];
        }
        for (std::int64_t kind = 0; kind < kinds; ++kind) {
          float sum[n];
          read(sums + kind * width + i, sum);
          for (int k = 0; k < n; ++k) sum[k] += kind == 0 ? normed[k] : gradient[k];
          write(sums + kind * width + i, sum);
        }
      });
      totals(block, along, block.shared());
      const float slope = along[0] * inverse, mean = call.mean != nullptr ? along[1] * inverse : 0.0F;
      each<N>(block, width, [&](auto count, std::int64_t i) {
        constexpr int n = decltype(count)::value;
        float gradient[n], normed[n], scale[n], residual[n] = {};
        read(dy + i, gradient);
        read(x + i, normed);
        read(weight + i, scale);
        if (add != nullptr) read(add + i, residual);
        for (int k = 0; k < n; ++k) {
          normed[k] = (normed[k] - centre) * r;
          gradient[k] = (gradient[k] * scale[k] - mean - normed[k] * slope) * r + residual[k];
        }
        write(dx + i, gradient);
      });
    }
    each<N>(block, sums_in_shared ? width : 0, [&](auto count, std::int64_t i) {
      float values[decltype(count)::value];
      for (std::int64_t k = 0; k < kinds; ++k) {
        read(sums + k * width + i, values);
        write(own + k * width + i, values);
      }
    });
  }
};

template <class Launch>
void start(const NormCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(call.rows, threads_for(call.width / A::count), most_warps * 4,
               NormRow<typename A::Type, A::count>{call});
      },
      Array{call.x, call.width}, Array{call.y, call.width}, Array{call.weight}, Array{call.bias});
}

template <class Launch>
void start(const NormBackwardCall& call, Launch& launch) {
  const std::int64_t parts = norm_parts(call.rows), kinds = norm_sums(call.dweight != nullptr, call.dbias != nullptr),
                     room = 2 * most_warps * 4;
  const std::int64_t sums_bytes = kinds * call.width * 4;
  const std::int64_t rows = parts > 0 ? call.rows / parts : 0;
  const bool fits = sums_bytes > 0 && room + sums_bytes <= 48 << 10;
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(parts, threads_for(call.width / A::count), room + (fits ? sums_bytes : 0),
               NormBackwardRows<typename A::Type, A::count>{call, kinds, rows, call.rows - parts * rows, fits});
      },
      Array{call.dy, call.width}, Array{call.x, call.width}, Array{call.dx, call.width}, Array{call.add},
      Array{call.weight});
  if (call.dweight != nullptr)
    fold_parts(call.parts, parts, call.width, kinds * call.width, call.dweight, call.accumulate, launch);
  if (call.dbias != nullptr)
    fold_parts(call.parts + call.width, parts, call.width, kinds * call.width, call.dbias, call.accumulate, launch);
}

}  // namespace argosy::kernels::cuda
