// Vector types and functions of one instruction set. Included by table.ipp inside its namespace.

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

typedef float Vec __attribute__((vector_size(lanes * 4), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }

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

/// A vector rounded as by narrow(). Where the processor has an instruction for it, numbers below 2^-126 become zero.
inline void store_narrow(Bf16* p, Vec v) {
#if defined(__AVX512BF16__)
  const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
  std::memcpy(p, &rounded, sizeof rounded);
#else
#pragma omp simd
  for (int i = 0; i < lanes; ++i) p[i] = narrow<Bf16>(v[i]);
#endif
}

/// e^x to 1e-7 relative for x in [-87, 88], clamped outside: no branches, so that loops over it vectorise.
inline float fast_exp(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  constexpr float magic = 12582912.0F;  // 1.5·2^23: adding it rounds to an integer in the low bits
  const float shifted = x * 1.44269504088896341F + magic;
  const float n = shifted - magic;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;  // the magic's own bits fall off
  return p * std::bit_cast<float>(exponent);
}

inline float sigmoid(float x) { return 1.0F / (1.0F + fast_exp(-x)); }
