// One step of decoding, row by row. Included by table.ipp inside its namespace.

/// Sums of neighbouring lanes of a, then of b.
template <int... k>
inline Vec pair_sums(Vec a, Vec b, std::integer_sequence<int, k...>) {
  return __builtin_shufflevector(a, b, (2 * k)...) + __builtin_shufflevector(a, b, (2 * k + 1)...);
}

/// Lane k of the result is the sum of the lanes of v[k]. v is overwritten.
inline Vec sums_of(Vec* v) {
#pragma GCC unroll 4
  for (int count = lanes; count > 1; count /= 2) {
#pragma GCC unroll 8
    for (int k = 0; k < count / 2; ++k)
      v[k] = pair_sums(v[2 * k], v[2 * k + 1], std::make_integer_sequence<int, lanes>{});
  }
  return v[0];
}

/// scores[j] = query · key of places[j]; the scores have room for whole vectors.
template <class T>
void score_keys(const float* query, const T* keys, std::int64_t stride, const std::int64_t* places, std::int64_t count,
                std::int64_t size, float* scores) {
  std::int64_t j = 0;
  if constexpr (std::is_same_v<T, float>) {
    for (; size % lanes == 0 && j < count; j += lanes) {
      Vec v[lanes];
      for (std::int64_t k = 0; k < lanes; ++k) {
        const float* const key = keys + places[std::min(j + k, count - 1)] * stride;
        v[k] = load(query) * load(key);
        for (std::int64_t i = lanes; i < size; i += lanes) v[k] += load(query + i) * load(key + i);
      }
      store(scores + j, sums_of(v));
    }
  }
  for (; j < count; ++j) {
    const T* const key = keys + places[j] * stride;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t i = 0; i < size; ++i) dot += query[i] * widen(key[i]);
    scores[j] = dot;
  }
}

/// out = Σ p[j] · value of places[j]
template <class T>
void mix_values(const float* p, const T* values, std::int64_t stride, const std::int64_t* places, std::int64_t count,
                std::int64_t size, T* out) {
  std::int64_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    for (; i + 2 * lanes <= size; i += 2 * lanes) {
      Vec low{}, high{};
      for (std::int64_t j = 0; j < count; ++j) {
        const float* const value = values + places[j] * stride + i;
        low += p[j] * load(value);
        high += p[j] * load(value + lanes);
      }
      store(out + i, low);
      store(out + i + lanes, high);
    }
  }
  for (; i < size; ++i) {
    float sum = 0;
    for (std::int64_t j = 0; j < count; ++j) sum += p[j] * widen(values[places[j] * stride + i]);
    out[i] = narrow<T>(sum);
  }
}

template <class T>
void attention_step(const T* q, const T* added, T* pool, const std::int64_t* places, std::int64_t length,
                    const AttentionStepShape& shape, T* out) {
  const std::int64_t size = shape.size, half = shape.kv_heads * size, group = shape.heads / shape.kv_heads;
  if (added != nullptr) std::copy(added, added + 2 * half, pool + places[length - 1] * 2 * half);
  const std::int64_t first = shape.window > 0 ? std::max<std::int64_t>(0, length - shape.window) : 0;
  const std::int64_t seen = length - first;
  places += first;
  float *const scores = scratch(padded(seen) + padded(size)), *const query = scores + padded(seen);
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    const T* const keys = pool + head / group * size;
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) query[i] = widen(q[head * size + i]) * shape.scale;
    score_keys(query, keys, 2 * half, places, seen, size, scores);
    if (shape.bias != nullptr) {
      const float* const bias = shape.bias + (head + 1) * shape.most - seen;
      for_vectors(seen, [&](auto at) { at.set(scores, at.get(scores) + at.get(bias)); });
    }
    probabilities(scores, {0, seen});
    mix_values(scores, keys + half, 2 * half, places, seen, size, out + head * size);
  }
}

inline void top_log_probabilities(const float* logits, std::int64_t live, std::int64_t count, float* values,
                                  std::int64_t* ids) {
  constexpr std::int64_t block = 64;  // such a part is passed over if its highest logit is too low
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  const std::int64_t blocks = (live + block - 1) / block;
  float* const peaks = scratch(blocks);
  float highest = nothing;
  for (std::int64_t b = 0; b < blocks; ++b) {
    float peak = nothing;
#pragma omp simd reduction(max : peak)
    for (std::int64_t i = b * block; i < std::min(live, (b + 1) * block); ++i)
      peak = logits[i] > peak ? logits[i] : peak;
    peaks[b] = peak;
    highest = peak > highest ? peak : highest;
  }
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < live; ++i) total += fast_exp(logits[i] - highest);
  const float lse = highest + std::log(total);
  std::int64_t found = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    if (found == count && !(peaks[b] > values[count - 1])) continue;
    for (std::int64_t i = b * block; i < std::min(live, (b + 1) * block); ++i) {
      if (found == count && !(logits[i] > values[count - 1])) continue;
      std::int64_t at = found < count ? found++ : count - 1;
      for (; at > 0 && logits[i] > values[at - 1]; --at) values[at] = values[at - 1], ids[at] = ids[at - 1];
      values[at] = logits[i], ids[at] = i;
    }
  }
  for (std::int64_t k = 0; k < count; ++k) {
    if (k >= found) values[k] = nothing, ids[k] = 0;
    values[k] -= lse;
    if (std::isnan(lse)) values[k] = lse;
  }
}
