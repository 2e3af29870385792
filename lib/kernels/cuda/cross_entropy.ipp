// Cross-entropy of rows of logits, whose gradient takes their place: a block for each row. The row is read twice.
#include "kernels/cuda/block.hpp"
#include "kernels/cuda/entries.hpp"

namespace argosy::kernels::cuda {

/// Of a part of a row: the highest logit and its lowest place; Σ e, Σ e² with e = exp(logit - highest); Σ logit.
struct SoftmaxPart {
  float highest, total, squares, sum;
  std::int64_t place;
};

ARGOSY_DEVICE void take_in(SoftmaxPart& part, float logit, std::int64_t place) {
  part.sum += logit;
  if (logit > part.highest) {
    const float shrink = std::exp(part.highest - logit);
    part.total = part.total * shrink + 1.0F;
    part.squares = part.squares * shrink * shrink + 1.0F;
    part.highest = logit;
    part.place = place;
  } else {  // two infinities are equal; a NaN spreads
    const float e = logit == part.highest ? 1.0F : std::exp(logit - part.highest);
    part.total += e;
    part.squares += e * e;
    if (logit == part.highest && place < part.place) part.place = place;
  }
}

ARGOSY_DEVICE SoftmaxPart joined(const SoftmaxPart& a, const SoftmaxPart& b) {
  const float highest = a.highest > b.highest ? a.highest : b.highest;
  const float x = a.highest == highest ? 1.0F : std::exp(a.highest - highest);
  const float y = b.highest == highest ? 1.0F : std::exp(b.highest - highest);
  const bool first = a.highest > b.highest || (a.highest == b.highest && a.place < b.place);
  return {highest, a.total * x + b.total * y, a.squares * x * x + b.squares * y * y, a.sum + b.sum,
          first ? a.place : b.place};
}

/// Shared memory: most_warps parts, then one RowSlopes.
struct RowSlopes {
  float highest, factor, uniform, hit;
};

template <class T, int N>
struct CrossEntropyRows {
  CrossEntropyCall call;

  template <class Block>
  ARGOSY_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = block.index(), live = call.live, label = call.labels[row];
    T* const logits = static_cast<T*>(call.logits) + row * call.stride;
    const T* const bias = static_cast<const T*>(call.bias);
    double* const result = call.results + row * 5;
    if (label < 0) {  // the same for all threads
      if (block.thread() < 5) result[block.thread()] = 0;
      if (call.gradient) fill(block, logits, live);
      return;
    }
    SoftmaxPart part{-HUGE_VALF, 0, 0, 0, live};
    each<N>(block, live, [&](auto count, std::int64_t i) {
      constexpr int n = decltype(count)::value;
      float values[n];
      read_logits<n>(logits, bias, i, values);
      for (int k = 0; k < n; ++k) take_in(part, values[k], i + k);
    });
    float at_label[1] = {std::nanf("")};  // of an id that there is not
    if (label < live) read_logits<1>(logits, bias, label, at_label);
    auto* const parts = reinterpret_cast<SoftmaxPart*>(block.shared());
    auto* const slopes = reinterpret_cast<RowSlopes*>(parts + most_warps);
    for (int mask = 16; mask > 0; mask /= 2) {
      const SoftmaxPart other{block.shuffled(part.highest, mask), block.shuffled(part.total, mask),
                              block.shuffled(part.squares, mask), block.shuffled(part.sum, mask),
                              block.shuffled(part.place, mask)};
      part = joined(part, other);
    }
    if (block.thread() % 32 == 0) parts[block.thread() / 32] = part;
    block.wait();
    if (block.thread() == 0) {
      for (int w = 1; w < block.threads() / 32; ++w) part = joined(part, parts[w]);
      *slopes = finish(part, at_label[0], label, result);
    }
    block.wait();
    if (!call.gradient) return;
    const RowSlopes own = *slopes;
    if (own.hit < 0) {  // truncated
      fill(block, logits, live);
      return;
    }
    each<N>(block, live, [&](auto count, std::int64_t i) {
      constexpr int n = decltype(count)::value;
      float values[n];
      read_logits<n>(logits, bias, i, values);
      for (int k = 0; k < n; ++k) {
        values[k] = std::exp(values[k] - own.highest) * own.factor - own.uniform;
        if (i + k == label) values[k] -= own.hit;
      }
      write(logits + i, values);
    });
  }

  template <int n>
  ARGOSY_DEVICE static void read_logits(const T* logits, const T* bias, std::int64_t i, float (&values)[n]) {
    read(logits + i, values);
    if (bias == nullptr) return;
    float shift[n];
    read(bias + i, shift);
    for (int k = 0; k < n; ++k) values[k] += shift[k];
  }

  template <class Block>
  ARGOSY_DEVICE static void fill(const Block& block, T* logits, std::int64_t live) {
    each<N>(block, live, [&](auto count, std::int64_t i) {
      const float zeros[decltype(count)::value] = {};
      write(logits + i, zeros);
    });
  }

  /// Writes the row's numbers and returns what its gradient needs; hit is -1 if the row is truncated.
  ARGOSY_DEVICE RowSlopes finish(const SoftmaxPart& part, float at_label, std::int64_t label, double* result) const {
    const double total = part.total, width = static_cast<double>(call.live), smoothing = call.label_smoothing;
    const double lse = part.highest + std::log(total), nll = lse - at_label, mean = part.sum / width;
    const double whole = part.squares / (total * total) - 2 * std::exp(-nll) + 1;
    const double error = whole > 2 ? 2 : whole;
    const double scale = std::isnan(nll) ? nll : call.loss_scale;
    const bool kept = !(call.truncation > 0 && error > call.truncation * call.truncation);  // with NaN, too
    result[0] = nll;
    result[1] = kept ? (1 - smoothing) * nll + smoothing * (lse - mean) + call.z * lse * lse : 0;
    result[2] = 1;
    result[3] = part.place == label ? 1 : 0;
    result[4] = kept ? 0 : 1;
    return {part.highest, static_cast<float>(scale * (1 + 2 * call.z * lse) / total),
            static_cast<float>(call.loss_scale * smoothing / width),
            kept ? static_cast<float>(call.loss_scale * (1 - smoothing)) : -1.0F};
  }
};

template <class Launch>
void start(const CrossEntropyCall& call, Launch& launch) {
  with_access(
      call.bf16,
      [&](auto access) {
        using A = decltype(access);
        launch(call.rows, threads_for(call.live / A::count), most_warps * sizeof(SoftmaxPart) + sizeof(RowSlopes),
               CrossEntropyRows<typename A::Type, A::count>{call});
      },
      Array{call.logits, call.stride}, Array{call.bias});
}

}  // namespace argosy::kernels::cuda
