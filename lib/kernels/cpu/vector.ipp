// Vector types and functions of one instruction set. Included by table.ipp inside its namespace.

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

typedef float Vec __attribute__((vector_size(lanes * 4)));
typedef float VecInMemory __attribute__((vector_size(lanes * 4), aligned(4), may_alias));

typedef std::uint32_t Bits __attribute__((vector_size(lanes * 4)));
typedef std::uint16_t HalfVec __attribute__((vector_size(lanes * 2)));  // bits of bf16
// Types of their own: GCC keeps variables of a type that is less aligned in memory.
typedef float VecInMemory __attribute__((vector_size(lanes * 4), aligned(4), may_alias));
typedef std::uint16_t HalfVecInMemory __attribute__((vector_size(lanes * 2), aligned(2), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const VecInMemory*>(p); }
inline Vec widened(HalfVec v) {
#if defined(__AVX512F__)  // where GCC would widen by halves
  return reinterpret_cast<Vec>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(v)), 16));
#else
  return reinterpret_cast<Vec>(__builtin_convertvector(v, Bits) << 16);
#endif
}
inline Vec load(const Bf16* p) { return widened(*reinterpret_cast<const HalfVecInMemory*>(p)); }
inline void store(float* p, Vec v) { *reinterpret_cast<VecInMemory*>(p) = v; }

inline float widen(float v) { return v; }
inline float widen(Bf16 v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16); }

template <class T>
inline T narrow(float v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {  // round to nearest even; NaN stays NaN
    const auto bits = std::bit_cast<std::uint32_t>(v);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    return Bf16{static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? (bits >> 16) | 0x40U : rounded)};
  }
}

/// Rounded as by narrow(). Where the processor has an instruction for it, numbers below 2^-126 become zero.
inline HalfVec halves(Vec v) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<HalfVec>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
#else
  const Bits bits = reinterpret_cast<Bits>(v), rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return __builtin_convertvector((bits & 0x7fffffffU) > 0x7f800000U ? (bits >> 16) | 0x40U : rounded, HalfVec);
#endif
}
inline void store(Bf16* p, Vec v) { *reinterpret_cast<HalfVecInMemory*>(p) = halves(v); }

/// Numbers i … i + lanes - 1 of a row.
struct Whole {
  std::int64_t i;
  template <class T>
  Vec get(const T* row) const {
    return load(row + i);
  }
  template <class T>
  void set(T* row, Vec v) const {
    store(row + i, v);
  }
  Vec or_else(Vec v, float) const { return v; }
};

/// The last `count` numbers of a row, from i on: the others are loaded as zero and not stored.
struct Part {
  std::int64_t i, count;
#if defined(__AVX512F__)
  std::uint16_t mask = static_cast<std::uint16_t>((1U << count) - 1);
  Vec get(const float* row) const { return reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(mask, row + i)); }
  Vec get(const Bf16* row) const { return widened(reinterpret_cast<HalfVec>(_mm256_maskz_loadu_epi16(mask, row + i))); }
  void set(float* row, Vec v) const { _mm512_mask_storeu_ps(row + i, mask, reinterpret_cast<__m512>(v)); }
  void set(Bf16* row, Vec v) const { _mm256_mask_storeu_epi16(row + i, mask, reinterpret_cast<__m256i>(halves(v))); }
  /// v, with `other` in the place of what is not there.
  Vec or_else(Vec v, float other) const {
    return reinterpret_cast<Vec>(_mm512_mask_blend_ps(mask, _mm512_set1_ps(other), reinterpret_cast<__m512>(v)));
  }
#else
  template <class T>
  Vec get(const T* row) const {
    T all[lanes] = {};
    std::memcpy(all, row + i, static_cast<std::size_t>(count) * sizeof(T));
    return load(all);
  }
  template <class T>
  void set(T* row, Vec v) const {
    T all[lanes];
    store(all, v);
    std::memcpy(row + i, all, static_cast<std::size_t>(count) * sizeof(T));
  }
  /// v, with `other` in the place of what is not there.
  Vec or_else(Vec v, float other) const {
    for (std::int64_t k = count; k < lanes; ++k) v[k] = other;
    return v;
  }
#endif
};

/// Calls work(Whole) for each whole vector of a row of n numbers, and work(Part) for what is left.
template <class Work>
inline void for_vectors(std::int64_t n, Work&& work) {
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) work(Whole{i});
  if (i < n) work(Part{i, n - i});
}

template <class T>
inline void fill_zero(T* row, std::int64_t n) {
  for_vectors(n, [&](auto at) { at.set(row, Vec{}); });
}

/// a > b ? a : b; b if one is NaN.
inline float higher(float a, float b) { return a > b ? a : b; }
/// a < b ? a : b; b if one is NaN.
inline float lower(float a, float b) { return a < b ? a : b; }
#if defined(__AVX512F__)
inline Vec higher(Vec a, Vec b) {
  return reinterpret_cast<Vec>(_mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
inline Vec lower(Vec a, Vec b) {
  return reinterpret_cast<Vec>(_mm512_min_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
/// Of all lanes, in one order.
inline float sum_of(Vec v) { return _mm512_reduce_add_ps(reinterpret_cast<__m512>(v)); }
inline float highest_of(Vec v) { return _mm512_reduce_max_ps(reinterpret_cast<__m512>(v)); }
#else
inline Vec higher(Vec a, Vec b) { return a > b ? a : b; }
inline Vec lower(Vec a, Vec b) { return a < b ? a : b; }
template <class Pair>
inline float by_halves(Vec v, Pair pair) {
  for (int n = lanes / 2; n > 0; n /= 2) {
    for (int k = 0; k < n; ++k) v[k] = pair(v[k], v[k + n]);
  }
  return v[0];
}
/// Of all lanes, in one order.
inline float sum_of(Vec v) {
  return by_halves(v, [](float a, float b) { return a + b; });
}
inline float highest_of(Vec v) {
  return by_halves(v, [](float a, float b) { return higher(a, b); });
}
#endif

template <class V>
using BitsOf = std::conditional_t<std::is_same_v<V, float>, std::uint32_t, Bits>;

/// e^x to 1e-7 relative for x in [-87, 88], clamped outside: no branches, so that loops over it vectorise. V: float or
/// Vec.
template <class V>
[[gnu::always_inline]] inline V fast_exp(V x) {
  x = lower(V{} + 88.0F, higher(V{} - 87.0F, x));
  constexpr float magic = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer in the low bits
  const V shifted = x * 1.44269504088896341F + magic;
  const V n = shifted - magic;
  const V r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  V p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const auto exponent = (std::bit_cast<BitsOf<V>>(shifted) + 127U) << 23;  // the magic's own bits fall off
  return p * std::bit_cast<V>(exponent);
}

template <class V>
inline V sigmoid(V x) {
  return 1.0F / (1.0F + fast_exp(-x));
}
