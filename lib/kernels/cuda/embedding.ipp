// Embedding lookup, a block for each id, and the gradient of the table: a block for each occurrence of an id, of which
// the first sums all, in their order.
#include "kernels/cuda/block.hpp"
#include "kernels/cuda/entries.hpp"

namespace argosy::kernels::cuda {

template <class T, int N>
struct EmbeddingRow {
  EmbeddingCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t at = block.index(), width = call.width;
    const T* const from = static_cast<const T*>(call.table) + call.ids[at] * width;
    const std::int64_t position = call.positions != nullptr ? call.positions[at] : call.offset + at % call.length;
    each<N>(block, width, [&](auto count, std::int64_t i) {
      constexpr int n = decltype(count)::value;
      float value[n], place[n];
      read(from + i, value);
      for (int k = 0; k < n; ++k) value[k] *= call.scale;
      if (call.position_table != nullptr) {
        read(call.position_table + position * width + i, place);
        for (int k = 0; k < n; ++k) value[k] += place[k];
      }
      write(static_cast<T*>(call.y) + at * width + i, value);
    });
  }
};

template <class T, int N>
struct EmbeddingSegment {
  EmbeddingBackwardCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t first = block.index(), id = call.ids[first], width = call.width;
    if (id == call.skip_id || (first > 0 && call.ids[first - 1] == id)) return;
    float* const to = call.dtable + id * width;
    each<N>(block, width, [&](auto count, std::int64_t i) {
      constexpr int n = decltype(count)::value;
      float sum[n] = {}, values[n];
      if (call.accumulate) read(to + i, sum);
      for (std::int64_t at = first; at < call.n && call.ids[at] == id; ++at) {
        read(static_cast<const T*>(call.dx) + call.order[at] * width + i, values);
        for (int k = 0; k < n; ++k) sum[k] += values[k] * call.scale;
      }
      write(to + i, sum);
    });
  }
};

template <class Launch>
void start(const EmbeddingCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(call.n, threads_for(call.width / A::count), 0, EmbeddingRow<typename A::Type, A::count>{call});
      },
      Array{call.table, call.width}, Array{call.y, call.width}, Array{call.position_table, call.width});
}

template <class Launch>
void start(const EmbeddingBackwardCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(call.n, threads_for(call.width / A::count), 0, EmbeddingSegment<typename A::Type, A::count>{call});
      },
      Array{call.dx, call.width}, Array{call.dtable, call.width});
}

}  // namespace argosy::kernels::cuda
