// Attention of one (row, key head) and a range of queries at a time: the keys and values that these queries see are
// packed once, queries go in blocks. Products read fp32, or bf16 where the processor multiplies pairs of it; sums and
// the softmax are fp32. Included by table.ipp inside its namespace.

constexpr std::int64_t query_block = 32;

inline std::int64_t padded(std::int64_t n) { return (n + lanes - 1) / lanes * lanes; }

template <class T>
const T* head_of(const HeadsView& view, std::int64_t row, std::int64_t head) {
  return static_cast<const T*>(view.data) + row * view.row + head * view.head;
}

/// `count` positions of one head from `begin` as rows of operands, `width` numbers each (padding zero).
template <class T>
void pack(const HeadsView& view, std::int64_t row, std::int64_t head, std::int64_t begin, std::int64_t count,
          std::int64_t size, float* out, std::int64_t width) {
  const T* from = head_of<T>(view, row, head) + begin * view.position;
  auto* to = reinterpret_cast<Operand<T>*>(out);
  for (std::int64_t t = 0; t < count; ++t, from += view.position, to += width) {
    if constexpr (together<T> == 2) {
      std::memcpy(to, from, static_cast<std::size_t>(size) * sizeof(T));
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) to[i] = widen(from[i]);
    }
    std::fill(to + size, to + width, Operand<T>{});
  }
}

/// Rows of `from`, of `row_words` words, become columns of `out`, whose rows are `width` long; padding becomes zero.
inline void transpose(const float* from, std::int64_t rows, std::int64_t row_words, std::int64_t used_words, float* out,
                      std::int64_t width) {
  transpose_words(from, 4 * row_words, rows, used_words, out, 4 * width);
  for (std::int64_t j = 0; j < used_words; ++j) std::fill(out + j * width + rows, out + (j + 1) * width, 0.0F);
}

/// fp32 rows as operands: themselves, or rounded to `out`. Columns [begin, end), whole vectors.
template <class T>
float* rounded(float* rows, std::int64_t count, std::int64_t stride, std::int64_t begin, std::int64_t end, float* out) {
  if constexpr (together<T> == 1) {
    return rows;
  } else {
    auto* to = reinterpret_cast<Bf16*>(out);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = begin; j < end; j += lanes) store_narrow(to + i * stride + j, load(rows + i * stride + j));
    }
    return out;
  }
}

/// Rows of operands as words along the rows: themselves, or pairs of rows in `out`. Columns [begin, end).
template <class T>
float* paired(float* rows, std::int64_t count, std::int64_t stride, std::int64_t begin, std::int64_t end, float* out) {
  if constexpr (together<T> == 1) {
    return rows;
  } else {
    const auto* from = reinterpret_cast<const Bf16*>(rows);
    for (std::int64_t i = 0; i < count; i += 2) {
      const Bf16* first = from + i * stride + begin;
      interleave(first, i + 1 < count ? first + stride : nullptr, end - begin,
                 reinterpret_cast<std::uint32_t*>(out + i / 2 * stride + begin));
    }
    return out;
  }
}

template <class T>
void unpack(const float* from, std::int64_t width, const HeadsView& view, std::int64_t row, std::int64_t head,
            std::int64_t begin, std::int64_t count, std::int64_t size, float scale) {
  T* to = const_cast<T*>(head_of<T>(view, row, head)) + begin * view.position;
  for (std::int64_t t = 0; t < count; ++t, to += view.position, from += width) {
#pragma omp simd
    for (std::int64_t i = 0; i < size; ++i) to[i] = narrow<T>(from[i] * scale);
  }
}

/// Positions [from, to) of one head become zero.
template <class T>
void clear(const HeadsView& view, std::int64_t row, std::int64_t head, std::int64_t from, std::int64_t to,
           std::int64_t size) {
  T* at = const_cast<T*>(head_of<T>(view, row, head)) + from * view.position;
  for (std::int64_t t = from; t < to; ++t, at += view.position) std::fill(at, at + size, T{});
}

/// Keys [first, last) that query `query` of `row` may see, segments apart.
struct Range {
  std::int64_t first, last;
};
inline Range clipped(Range range, Range to) {
  const std::int64_t first = std::clamp(range.first, to.first, to.last);
  return {first, std::clamp(range.last, first, to.last)};
}
inline Range shifted(Range range, std::int64_t by) { return {range.first - by, range.last - by}; }

/// Words are the same pairs of keys wherever a part begins.
inline Range from_even(Range range) { return {range.first - range.first % 2, range.last}; }

inline Range seen(const AttentionShape& shape, std::int64_t row, std::int64_t query) {
  const std::int64_t position = shape.keys - shape.queries + query;
  Range range{0, shape.key_lengths != nullptr ? std::min(shape.key_lengths[row], shape.keys) : shape.keys};
  if (shape.causal || shape.window > 0) range.last = std::min(range.last, position + 1);
  if (shape.window > 0) range.first = std::max<std::int64_t>(0, position + 1 - shape.window);
  range.last = std::max(range.first, range.last);
  return range;
}

/// scores: of the keys from `begin` on.
inline void hide_other_segments(const AttentionShape& shape, std::int64_t row, std::int64_t query, Range range,
                                std::int64_t begin, float* scores) {
  if (shape.segments == nullptr) return;
  const std::int64_t* segment = shape.segments + row * shape.keys;
  const std::int64_t own = segment[shape.keys - shape.queries + query];
  for (std::int64_t j = range.first; j < range.last; ++j) {
    if (segment[j] != own) scores[j - begin] = -std::numeric_limits<float>::infinity();
  }
}

/// Scratch of the thread's tasks: kept, so that it is faulted in once. No std::vector: an inline function of the
/// library compiled for this instruction set could be the one the linker keeps for all.
struct Scratch {
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data); }
  float* data = nullptr;
  std::int64_t size = 0;
};
inline float* scratch(std::int64_t floats) {
  thread_local Scratch memory;
  if (memory.size < floats) {
    std::free(memory.data);
    memory.data = static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>((floats + 15) / 16 * 64)));
    memory.size = memory.data != nullptr ? floats : 0;
    if (memory.data == nullptr) throw std::bad_alloc();
  }
  return memory.data;
}

/// Scores [first, last) become probabilities, zero outside `range`; returns the log-sum-exp (-inf when nothing is
/// seen).
inline float softmax(float* s, std::int64_t first, Range range, std::int64_t last) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  float highest = nothing, total = 0;
#pragma omp simd reduction(max : highest)
  for (std::int64_t j = range.first; j < range.last; ++j) highest = s[j] > highest ? s[j] : highest;
  const bool any = highest > nothing;
#pragma omp simd reduction(+ : total)
  for (std::int64_t j = range.first; j < range.last; ++j) {
    const float e = s[j] > nothing ? fast_exp(s[j] - highest) : 0.0F;
    s[j] = e;
    total += e;
  }
  const float inverse = any ? 1 / total : 0;
  for (std::int64_t j = first; j < range.first; ++j) s[j] = 0;
#pragma omp simd
  for (std::int64_t j = range.first; j < range.last; ++j) s[j] = any ? s[j] * inverse : 0;
  for (std::int64_t j = range.last; j < last; ++j) s[j] = 0;
  return any ? highest + std::log(total) : nothing;
}

/// One query, as in decoding step by step: packing keys and values would cost more than the products.
template <class T>
void attend_once(const AttentionForward& io, const AttentionShape& shape, std::int64_t row, std::int64_t head,
                 std::int64_t query, float* scores, float* sum) {
  const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const Range range = seen(shape, row, query);
  const T* q = head_of<T>(io.q, row, head) + query * io.q.position;
  const T *k = head_of<T>(io.k, row, kv_head), *v = head_of<T>(io.v, row, kv_head);
  for (std::int64_t j = range.first; j < range.last; ++j) {
    const T* key = k + j * io.k.position;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t i = 0; i < shape.size; ++i) dot += widen(q[i]) * widen(key[i]);
    scores[j] = dot * shape.scale;
  }
  hide_other_segments(shape, row, query, range, 0, scores);
  io.lse[(row * shape.heads + head) * shape.queries + query] = softmax(scores, range.first, range, range.last);
  for (std::int64_t i = 0; i < shape.size; ++i) sum[i] = 0;
  for (std::int64_t j = range.first; j < range.last; ++j) {
    const T* value = v + j * io.v.position;
    const float p = scores[j];
#pragma omp simd
    for (std::int64_t i = 0; i < shape.size; ++i) sum[i] += p * widen(value[i]);
  }
  unpack<T>(sum, shape.size, io.out, row, head, query, 1, shape.size, 1);
}

/// The keys that any query of [query, query + count) may see. Documents are contiguous, as a packed row has them.
inline Range seen_by_block(const AttentionShape& shape, std::int64_t row, std::int64_t query, std::int64_t count) {
  Range range{seen(shape, row, query).first, seen(shape, row, query + count - 1).last};
  if (shape.segments == nullptr) return range;
  const std::int64_t* segment = shape.segments + row * shape.keys;
  const std::int64_t position = shape.keys - shape.queries + query;
  const auto belongs = [&](std::int64_t j) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (segment[position + i] == segment[j]) return true;
    }
    return false;
  };
  while (range.first < range.last && !belongs(range.first)) ++range.first;
  while (range.first < range.last && !belongs(range.last - 1)) --range.last;
  return range;
}

template <class T>
void attention(const AttentionForward& io, const AttentionShape& shape, const AttentionTask& task) {
  const auto [row, kv_head, first_query, end_query] = task;
  const std::int64_t size = shape.size, width = padded(size), group = shape.heads / shape.kv_heads;
  if (shape.queries == 1 && group <= 2) {
    float* memory = scratch(padded(shape.keys) + width);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      attend_once<T>(io, shape, row, head, 0, memory, memory + padded(shape.keys));
    return;
  }
  const Range all = from_even(seen_by_block(shape, row, first_query, end_query - first_query));
  const std::int64_t used = all.last - all.first, keys = padded(used), depth = words<T>(size),
                     row_words = words<T>(width);
  float* memory = scratch(3 * (used + 1) * width + depth * keys + query_block * (2 * width + 2 * keys));
  const auto take = [&memory](std::int64_t count) { return std::exchange(memory, memory + count); };
  float *k = take(used * width), *v = take(used * width), *v_pairs = take((used + 1) * width), *kt = take(depth * keys);
  float *q = take(query_block * width), *o = take(query_block * width), *scores = take(query_block * keys),
        *rounded_scores = take(query_block * keys);
  pack<T>(io.k, row, kv_head, all.first, used, size, k, width);
  pack<T>(io.v, row, kv_head, all.first, used, size, v, width);
  transpose(k, used, row_words, depth, kt, keys);
  v = paired<T>(v, used, width, 0, width, v_pairs);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t first = first_query; first < end_query; first += query_block) {
      const std::int64_t count = std::min(query_block, end_query - first);
      const Range block = seen_by_block(shape, row, first, count);
      // From here on keys are counted from the first packed one; products begin at a whole vector.
      const std::int64_t begin = std::max<std::int64_t>(0, block.first - all.first) / lanes * lanes;
      const std::int64_t last = std::max(begin, block.last - all.first), end = begin + padded(last - begin);
      pack<T>(io.q, row, head, first, count, size, q, width);
      multiply<T, false>(count, end - begin, depth, q, row_words, 1, kt + begin, keys, scores + begin, keys,
                         shape.scale);
      for (std::int64_t i = 0; i < count; ++i) {
        float* s = scores + i * keys;
        const Range own = clipped(seen(shape, row, first + i), block);
        hide_other_segments(shape, row, first + i, own, all.first, s);
        io.lse[(row * shape.heads + head) * shape.queries + first + i] =
            softmax(s, begin, shifted(own, all.first), end);
      }
      const float* p = rounded<T>(scores, count, keys, begin, end, rounded_scores);
      multiply<T, false>(count, width, words<T>(last - begin), p + begin / together<T>, words<T>(keys), 1,
                         v + begin / together<T> * width, width, o, width);
      unpack<T>(o, width, io.out, row, head, first, count, size, 1);
    }
  }
}

template <class T>
void attention_backward(const AttentionBackward& io, const AttentionShape& shape, const AttentionBackwardTask& task) {
  const auto [row, kv_head, first_query, end_query, first_key, end_key, wants_query, wants_key] = task;
  const std::int64_t size = shape.size, width = padded(size), group = shape.heads / shape.kv_heads;
  const Range all =
      from_even(clipped(seen_by_block(shape, row, first_query, end_query - first_query), {first_key, end_key}));
  const std::int64_t used = all.last - all.first, keys = padded(used), depth = words<T>(size),
                     row_words = words<T>(width);
  float* memory = scratch(5 * (used + 1) * width + 2 * depth * keys + query_block * (6 * width + 6 * keys));
  const auto take = [&memory](std::int64_t count) { return std::exchange(memory, memory + count); };
  float *k = take(used * width), *v = take(used * width), *dk = take(used * width), *dv = take(used * width),
        *k_pairs = take((used + 1) * width), *kt = take(depth * keys), *vt = take(depth * keys);
  const auto of_queries = [&] { return take(query_block * width); };
  const auto of_scores = [&] { return take(query_block * keys); };
  float *q = of_queries(), *q_pairs = of_queries(), *o = of_queries(), *go = of_queries(), *go_pairs = of_queries(),
        *dq = of_queries(), *p = of_scores(), *dp = of_scores(), *rounded_p = of_scores(), *rounded_dp = of_scores(),
        *p_pairs = of_scores(), *dp_pairs = of_scores();
  pack<T>(io.k, row, kv_head, all.first, used, size, k, width);
  pack<T>(io.v, row, kv_head, all.first, used, size, v, width);
  transpose(k, used, row_words, depth, kt, keys);
  transpose(v, used, row_words, depth, vt, keys);
  k = paired<T>(k, used, width, 0, width, k_pairs);
  std::fill(dk, dk + used * width, 0.0F);
  std::fill(dv, dv + used * width, 0.0F);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t first = first_query; first < end_query; first += query_block) {
      const std::int64_t count = std::min(query_block, end_query - first);
      const Range block = clipped(seen_by_block(shape, row, first, count), all);
      const bool sees_any = block.first < block.last;  // of these keys
      if (!sees_any && !wants_query) continue;
      const std::int64_t last = block.last - all.first;
      const std::int64_t begin = sees_any ? (block.first - all.first) / lanes * lanes : last;
      const std::int64_t end = begin + padded(last - begin);
      pack<T>(io.q, row, head, first, count, size, q, width);
      pack<T>(io.out, row, head, first, count, size, o, width);
      pack<T>(io.dout, row, head, first, count, size, go, width);
      multiply<T, false>(count, end - begin, depth, q, row_words, 1, kt + begin, keys, p + begin, keys, shape.scale);
      multiply<T, false>(count, end - begin, depth, go, row_words, 1, vt + begin, keys, dp + begin, keys);
      for (std::int64_t i = 0; i < count && sees_any; ++i) {
        float *s = p + i * keys, *ds = dp + i * keys;
        const Range own = clipped(seen(shape, row, first + i), block);
        hide_other_segments(shape, row, first + i, own, all.first, s);
        const Range range = shifted(own, all.first);
        const auto *out = reinterpret_cast<const Operand<T>*>(o) + i * width,
                   *dout = reinterpret_cast<const Operand<T>*>(go) + i * width;
        float delta = 0;
#pragma omp simd reduction(+ : delta)
        for (std::int64_t j = 0; j < width; ++j) delta += widen(out[j]) * widen(dout[j]);
        const float lse = io.lse[(row * shape.heads + head) * shape.queries + first + i];
        const bool any = lse > -std::numeric_limits<float>::infinity();
        for (std::int64_t j = begin; j < range.first; ++j) s[j] = ds[j] = 0;
#pragma omp simd
        for (std::int64_t j = range.first; j < range.last; ++j) {
          const float e = any && s[j] > -std::numeric_limits<float>::infinity() ? fast_exp(s[j] - lse) : 0.0F;
          s[j] = e;
          ds[j] = e * (ds[j] - delta);
        }
        for (std::int64_t j = range.last; j < end; ++j) s[j] = ds[j] = 0;
      }
      float* ds = rounded<T>(dp, count, keys, begin, end, rounded_dp);
      if (wants_query) {
        multiply<T, false>(count, width, words<T>(last - begin), ds + begin / together<T>, words<T>(keys), 1,
                           k + begin / together<T> * width, width, dq, width);
        unpack<T>(dq, width, io.dq, row, head, first, count, size, shape.scale);
      }
      if (wants_key) {
        const auto add = [&](float* of, float* pairs, float* rows, float* row_pairs, float* to) {
          multiply<T, true>(last - begin, width, words<T>(count), paired<T>(of, count, keys, begin, end, pairs) + begin,
                            1, keys, paired<T>(rows, count, width, 0, width, row_pairs), width, to + begin * width,
                            width);
        };
        add(ds, dp_pairs, q, q_pairs, dk);
        add(rounded<T>(p, count, keys, begin, end, rounded_p), p_pairs, go, go_pairs, dv);
      }
    }
  }
  if (!wants_key) return;
  unpack<T>(dk, width, io.dk, row, kv_head, all.first, used, size, shape.scale);
  unpack<T>(dv, width, io.dv, row, kv_head, all.first, used, size, 1);
  for (const auto& [from, to] : {Range{first_key, all.first}, Range{all.last, end_key}}) {
    clear<T>(io.dk, row, kv_head, from, to, size);
    clear<T>(io.dv, row, kv_head, from, to, size);
  }
}
