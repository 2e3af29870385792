// Attention of one (row, key head) and a range of queries at a time: the keys and values that these queries see are
// packed once, queries go in blocks. Products read fp32, or bf16 where the processor multiplies pairs of it; sums and
// the softmax are fp32. Included by table.ipp inside its namespace.

constexpr std::int64_t query_block = 32;

inline std::int64_t padded(std::int64_t n) { return (n + lanes - 1) / lanes * lanes; }

template <class T>
const T* head_of(const HeadsView& view, std::int64_t row, std::int64_t head) {
  return static_cast<const T*>(view.data) + row * view.row + head * view.head;
}

struct Head {
  std::int64_t row, head;
};
/// Which one the next task of a thread has.
inline Head after(Head one, std::int64_t heads) {
  return one.head + 1 == heads ? Head{one.row + 1, 0} : Head{one.row, one.head + 1};
}

/// Brings position `t` of a head, which is read or written soon, into the cache: a processor does not look ahead to
/// pieces of memory that are so short. The head may lie behind the last row.
template <class T>
void fetch(const HeadsView& view, Head of, std::int64_t t, std::int64_t size) {
  constexpr std::int64_t bytes = sizeof(T), line = 64;
  const std::int64_t at = of.row * view.row + of.head * view.head + t * view.position;
  const auto from = reinterpret_cast<std::uintptr_t>(view.data) + static_cast<std::uintptr_t>(at * bytes);
  for (std::int64_t i = 0; i < size * bytes; i += line)
    __builtin_prefetch(reinterpret_cast<const void*>(from + static_cast<std::uintptr_t>(i)), 0, 2);
}

/// Rows of operands; the stride counts numbers.
template <class T>
struct Rows {
  const Operand<T>* data;
  std::int64_t stride;
  [[nodiscard]] const float* words() const { return reinterpret_cast<const float*>(data); }
  [[nodiscard]] std::int64_t word_stride() const { return stride / together<T>; }
};

/// `count` positions of one head from `begin`: where they are, if they are rows of words there, or copied to `buffer`.
/// By `whole` vectors: numbers from `size` on are zero then.
template <class T>
Rows<T> rows_of(const HeadsView& view, std::int64_t row, std::int64_t head, std::int64_t begin, std::int64_t count,
                std::int64_t size, float* buffer, bool whole = false) {
  const T* from = head_of<T>(view, row, head) + begin * view.position;
  const std::int64_t width = padded(size), unit = whole ? lanes : together<T>;
  if constexpr (std::is_same_v<T, Operand<T>>) {
    if (size % unit == 0 && view.position % together<T> == 0) return {from, view.position};
  }
  auto* const to = reinterpret_cast<Operand<T>*>(buffer);
  for (std::int64_t t = 0; t < count; ++t, from += view.position)
    for_vectors(size, [&](auto at) { store(to + t * width + at.i, at.get(from)); });
  return {to, width};
}

/// Rows of `from` become columns of `out`, whose rows are `width` words long; padding becomes zero.
template <class T>
void transpose(Rows<T> from, std::int64_t rows, std::int64_t size, float* out, std::int64_t width) {
  const auto stride = from.stride * static_cast<std::int64_t>(sizeof(Operand<T>));
  transpose_words(from.data, stride, rows, words<T>(size), out, 4 * width);
  for (std::int64_t j = 0; j < words<T>(size); ++j) std::fill(out + j * width + rows, out + (j + 1) * width, 0.0F);
}

/// The right operand of a product whose depth is along the rows: in bf16, pairs of rows in `out`; the rows themselves
/// in fp32, which are whole vectors then.
template <class T>
Rows<T> paired(Rows<T> from, std::int64_t count, std::int64_t size, float* out) {
  if constexpr (together<T> == 1) {
    return from;
  } else {
    const std::int64_t width = padded(size);
    for (std::int64_t i = 0; i < count; i += 2) {
      const Bf16* const first = from.data + i * from.stride;
      interleave(first, i + 1 < count ? first + from.stride : nullptr, size, out + i / 2 * width);
      fill_zero(out + i / 2 * width + size, width - size);
    }
    return {reinterpret_cast<const Bf16*>(out), 2 * width};
  }
}

/// Rows of scores as words along the rows: themselves, or pairs of rows in `out`. Columns [begin, end), whole vectors.
template <class T>
const float* paired_scores(const float* rows, std::int64_t count, std::int64_t stride, std::int64_t begin,
                           std::int64_t end, float* out) {
  if constexpr (together<T> == 1) {
    return rows;
  } else {
    const auto* const from = reinterpret_cast<const Bf16*>(rows) + begin;
    for (std::int64_t i = 0; i < count; i += 2) {
      const Bf16* const first = from + i * stride;
      interleave(first, i + 1 < count ? first + stride : nullptr, end - begin, out + i / 2 * stride + begin);
    }
    return out;
  }
}

template <class T>
void unpack(const float* from, std::int64_t width, const HeadsView& view, std::int64_t row, std::int64_t head,
            std::int64_t begin, std::int64_t count, std::int64_t size, float scale) {
  T* to = const_cast<T*>(head_of<T>(view, row, head)) + begin * view.position;
  for (std::int64_t t = 0; t < count; ++t, to += view.position, from += width)
    for_vectors(size, [&](auto at) { at.set(to, at.get(from) * scale); });
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
  if (shape.causal || shape.window > 0) {
    std::int64_t end = position + 1;
    if (shape.prompts != nullptr) end = std::max(end, shape.prompts[row * shape.queries + query]);
    if (shape.window > 0) end = std::min(end, position + shape.window);
    range.last = std::min(range.last, end);
  }
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

/// Element of `bias` [heads, …] for key 0.
inline std::int64_t bias_begin(const AttentionShape& shape, std::int64_t head, std::int64_t query) {
  return head * (shape.keys + shape.queries - 1) + shape.queries - 1 - query;
}

/// Adds the bias of the keys in `range` to the scores of a query. scores: of the keys from `begin` on.
inline void add_bias(const AttentionShape& shape, std::int64_t head, std::int64_t query, Range range,
                     std::int64_t begin, float* scores) {
  const float* const bias = shape.bias + bias_begin(shape, head, query) + range.first;
  float* const to = scores + range.first - begin;
  for_vectors(range.last - range.first, [&](auto at) { at.set(to, at.get(to) + at.get(bias)); });
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

struct Softmax {
  float lse;      // log-sum-exp; -inf when nothing is seen
  float inverse;  // of the sum
};

/// out = e^(score - the highest one) within `range`, zero in the rest of [first, last). To be divided by the sum.
template <class Out>
inline Softmax softmax(const float* scores, std::int64_t first, Range range, std::int64_t last, Out* out) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  const std::int64_t count = range.last - range.first;
  const float* const from = scores + range.first;
  Vec peaks = Vec{} + nothing, sums{};
  for_vectors(count, [&](auto at) { peaks = higher(peaks, at.or_else(at.get(from), nothing)); });
  const float highest = highest_of(peaks);
  if (highest == nothing) {
    fill_zero(out + first, last - first);
    return {nothing, 0};
  }
  Out* const to = out + range.first;
  for_vectors(count, [&](auto at) {
    const Vec v = at.or_else(at.get(from), nothing), e = v == nothing ? 0.0F : fast_exp(v - highest);
    sums += e;
    at.set(to, e);
  });
  fill_zero(out + first, range.first - first);
  fill_zero(to + count, last - range.last);
  const float sum = sum_of(sums);
  return {highest + std::log(sum), 1 / sum};
}

/// p: the probabilities of the scores in `range`; ds = p·(dp - delta); zero in the rest of [first, last).
template <class Out>
inline void softmax_backward(const float* scores, const float* dp, std::int64_t first, Range range, std::int64_t last,
                             float lse, float delta, Out* p, Out* ds) {
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  if (lse == nothing) range.last = range.first;
  const float *const from = scores + range.first, *const slope = dp + range.first;
  Out *const to_p = p + range.first, *const to_ds = ds + range.first;
  for_vectors(range.last - range.first, [&](auto at) {
    const Vec v = at.get(from), e = v == nothing ? 0.0F : fast_exp(v - lse);
    const Vec d = e * (at.get(slope) - delta);
    at.set(to_p, e);
    at.set(to_ds, d);
  });
  for (Out* row : {p, ds}) {
    fill_zero(row + first, range.first - first);
    fill_zero(row + range.last, last - range.last);
  }
}

/// The same in place, divided by the sum.
inline float probabilities(float* scores, Range range) {
  const auto [lse, inverse] = softmax(scores, range.first, range, range.last, scores);
  float* const p = scores + range.first;
  for_vectors(range.last - range.first, [&, by = inverse](auto at) { at.set(p, at.get(p) * by); });
  return lse;
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
  if (shape.bias != nullptr) add_bias(shape, head, query, range, 0, scores);
  hide_other_segments(shape, row, query, range, 0, scores);
  io.lse[(row * shape.heads + head) * shape.queries + query] = probabilities(scores, range);
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
  [[maybe_unused]] const TilesReleased at_end;
  const Range all = from_even(seen_by_block(shape, row, first_query, end_query - first_query));
  const std::int64_t used = all.last - all.first, keys = padded(used), depth = words<T>(size);
  float* memory = scratch((3 * used + 1) * width + depth * keys + query_block * (2 * width + 2 * keys));
  const auto take = [&memory](std::int64_t count) { return std::exchange(memory, memory + count); };
  float *k_rows = take(used * width), *v_rows = take(used * width), *v_pairs = take((used + 1) * width),
        *kt = take(depth * keys), *q_rows = take(query_block * width), *o = take(query_block * width),
        *scores = take(query_block * keys), *p = together<T> == 1 ? scores : take(query_block * keys);
  transpose(rows_of<T>(io.k, row, kv_head, all.first, used, size, k_rows), used, size, kt, keys);
  const Rows<T> v =
      paired(rows_of<T>(io.v, row, kv_head, all.first, used, size, v_rows, together<T> == 1), used, size, v_pairs);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t first = first_query; first < end_query; first += query_block) {
      const std::int64_t count = std::min(query_block, end_query - first);
      const Range block = seen_by_block(shape, row, first, count);
      // From here on keys are counted from the first packed one; products begin at a whole vector.
      const std::int64_t begin = std::max<std::int64_t>(0, block.first - all.first) / lanes * lanes;
      const std::int64_t last = std::max(begin, block.last - all.first), end = begin + padded(last - begin);
      const Rows<T> q = rows_of<T>(io.q, row, head, first, count, size, q_rows);
      multiply<T, false>(count, end - begin, depth, q.words(), q.word_stride(), 1, kt + begin, keys, scores + begin,
                         keys, shape.scale);
      float inverse[query_block];
      for (std::int64_t i = 0; i < count; ++i) {
        const Range own = clipped(seen(shape, row, first + i), block);
        if (shape.bias != nullptr) add_bias(shape, head, first + i, own, all.first, scores + i * keys);
        hide_other_segments(shape, row, first + i, own, all.first, scores + i * keys);
        const Softmax of = softmax(scores + i * keys, begin, shifted(own, all.first), end,
                                   reinterpret_cast<Operand<T>*>(p) + i * keys);
        io.lse[(row * shape.heads + head) * shape.queries + first + i] = of.lse;
        inverse[i] = of.inverse;
        fetch<T>(io.out, {row, head}, first + i, size);
        fetch<T>(io.q, after({row, head}, shape.heads), first + i, size);
        if (first + i >= shape.keys) continue;
        for (const HeadsView& view : {io.k, io.v})
          fetch<T>(view, after({row, kv_head}, shape.kv_heads), first + i, size);
      }
      multiply<T, false>(count, width, words<T>(last - begin), p + begin / together<T>, words<T>(keys), 1,
                         v.words() + begin / together<T> * v.word_stride(), v.word_stride(), o, width);
      for (std::int64_t i = 0; i < count; ++i)
        unpack<T>(o + i * width, width, io.out, row, head, first + i, 1, size, inverse[i]);
    }
  }
}

template <class T>
void attention_backward(const AttentionBackward& io, const AttentionShape& shape, const AttentionBackwardTask& task) {
  const auto [row, kv_head, first_query, end_query, first_key, end_key, wants_query, wants_key] = task;
  const std::int64_t size = shape.size, width = padded(size), group = shape.heads / shape.kv_heads;
  [[maybe_unused]] const TilesReleased at_end;
  const Range all =
      from_even(clipped(seen_by_block(shape, row, first_query, end_query - first_query), {first_key, end_key}));
  const std::int64_t used = all.last - all.first, keys = padded(used), depth = words<T>(size);
  float* memory = scratch((5 * used + 1) * width + 2 * depth * keys + query_block * (5 * width + 6 * keys));
  const auto take = [&memory](std::int64_t count) { return std::exchange(memory, memory + count); };
  float *k_rows = take(used * width), *v_rows = take(used * width), *dk = take(used * width), *dv = take(used * width),
        *k_pairs = take((used + 1) * width), *kt = take(depth * keys), *vt = take(depth * keys);
  const auto of_queries = [&] { return take(query_block * width); };
  const auto of_scores = [&] { return take(query_block * keys); };
  float *q_rows = of_queries(), *q_pairs = of_queries(), *go_rows = of_queries(), *go_pairs = of_queries(),
        *dq = of_queries(), *scores = of_scores(), *dp = of_scores(), *p = together<T> == 1 ? scores : of_scores(),
        *ds = together<T> == 1 ? dp : of_scores(), *p_pairs = of_scores(), *ds_pairs = of_scores();
  constexpr bool whole = together<T> == 1;  // these rows are right operands themselves
  const Rows<T> keys_of = rows_of<T>(io.k, row, kv_head, all.first, used, size, k_rows, whole);
  transpose(keys_of, used, size, kt, keys);
  transpose(rows_of<T>(io.v, row, kv_head, all.first, used, size, v_rows), used, size, vt, keys);
  const Rows<T> k = paired(keys_of, used, size, k_pairs);
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
      const Rows<T> q = rows_of<T>(io.q, row, head, first, count, size, q_rows, whole),
                    go = rows_of<T>(io.dout, row, head, first, count, size, go_rows, whole);
      multiply<T, false>(count, end - begin, depth, q.words(), q.word_stride(), 1, kt + begin, keys, scores + begin,
                         keys, shape.scale);
      multiply<T, false>(count, end - begin, depth, go.words(), go.word_stride(), 1, vt + begin, keys, dp + begin,
                         keys);
      for (std::int64_t i = 0; i < count && sees_any; ++i) {
        const Range own = clipped(seen(shape, row, first + i), block);
        if (shape.bias != nullptr) add_bias(shape, head, first + i, own, all.first, scores + i * keys);
        hide_other_segments(shape, row, first + i, own, all.first, scores + i * keys);
        const float lse = io.lse[(row * shape.heads + head) * shape.queries + first + i];
        Vec deltas{};
        const T* const out = head_of<T>(io.out, row, head) + (first + i) * io.out.position;
        for_vectors(size, [&](auto at) { deltas += at.get(out) * at.get(go.data + i * go.stride); });
        softmax_backward(scores + i * keys, dp + i * keys, begin, shifted(own, all.first), end, lse, sum_of(deltas),
                         reinterpret_cast<Operand<T>*>(p) + i * keys, reinterpret_cast<Operand<T>*>(ds) + i * keys);
        fetch<T>(io.dq, {row, head}, first + i, size);
        for (const HeadsView& view : {io.q, io.dout, io.out})
          fetch<T>(view, after({row, head}, shape.heads), first + i, size);
        if (first + i < shape.keys) {
          for (const HeadsView& view : {io.dk, io.dv}) fetch<T>(view, {row, kv_head}, first + i, size);
          for (const HeadsView& view : {io.k, io.v})
            fetch<T>(view, after({row, kv_head}, shape.kv_heads), first + i, size);
        }
        if (io.dbias == nullptr) continue;
        float* const dbias = io.dbias + row * shape.heads * (shape.keys + shape.queries - 1) +
                             bias_begin(shape, head, first + i) + own.first;
        const Operand<T>* const slope = reinterpret_cast<const Operand<T>*>(ds) + i * keys + own.first - all.first;
        for_vectors(own.last - own.first, [&](auto at) { at.set(dbias, at.get(dbias) + at.get(slope)); });
      }
      if (wants_query) {
        multiply<T, false>(count, width, words<T>(last - begin), ds + begin / together<T>, words<T>(keys), 1,
                           k.words() + begin / together<T> * k.word_stride(), k.word_stride(), dq, width);
        unpack<T>(dq, width, io.dq, row, head, first, count, size, shape.scale);
      }
      if (wants_key) {
        const auto add = [&](const float* of, float* pairs, Rows<T> rows, float* row_pairs, float* to) {
          const Rows<T> right = paired(rows, count, size, row_pairs);
          multiply<T, true>(last - begin, width, words<T>(count),
                            paired_scores<T>(of, count, keys, begin, end, pairs) + begin, 1, keys, right.words(),
                            right.word_stride(), to + begin * width, width);
        };
        add(ds, ds_pairs, q, q_pairs, dk);
        add(p, p_pairs, go, go_pairs, dv);
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
