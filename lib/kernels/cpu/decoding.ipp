// One step of decoding, row by row. Included by table.ipp inside its namespace.

template <class T>
void attention_step(const T* q, const T* added, T* pool, const std::int64_t* places, std::int64_t length,
                    const AttentionStepShape& shape, T* out) {
  const std::int64_t size = shape.size, half = shape.kv_heads * size, group = shape.heads / shape.kv_heads;
  if (added != nullptr) std::copy(added, added + 2 * half, pool + places[length - 1] * 2 * half);
  const std::int64_t first = shape.window > 0 ? std::max<std::int64_t>(0, length - shape.window) : 0;
  const std::int64_t seen = length - first, width = padded(seen), all = shape.heads * size;
  float* const memory = scratch(shape.heads * width + 2 * padded(all));
  float *const scores = memory, *const query = scores + shape.heads * width, *const sum = query + padded(all);
#pragma omp simd
  for (std::int64_t i = 0; i < all; ++i) query[i] = widen(q[i]) * shape.scale;
  for (std::int64_t j = 0; j < seen; ++j) {
    const T* const keys = pool + places[first + j] * 2 * half;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* const key = keys + head / group * size;
      const float* const own = query + head * size;
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t i = 0; i < size; ++i) dot += own[i] * widen(key[i]);
      scores[head * width + j] = dot;
    }
  }
  for (std::int64_t head = 0; head < shape.heads; ++head) softmax(scores + head * width, 0, {0, seen}, seen);
  std::fill(sum, sum + all, 0.0F);
  for (std::int64_t j = 0; j < seen; ++j) {
    const T* const values = pool + places[first + j] * 2 * half + half;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* const value = values + head / group * size;
      float* const own = sum + head * size;
      const float p = scores[head * width + j];
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) own[i] += p * widen(value[i]);
    }
  }
#pragma omp simd
  for (std::int64_t i = 0; i < all; ++i) out[i] = narrow<T>(sum[i]);
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
