// Row-wise and flat loops. Included by table.ipp inside its namespace.

template <class T>
void norm(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd, std::int64_t rows,
          std::int64_t width, double epsilon) {
  const float inverse = 1.0F / static_cast<float>(width);
  for (std::int64_t row = 0; row < rows; ++row, x += width, y += width) {
    float centre = 0;
    if (mean != nullptr) {
#pragma omp simd reduction(+ : centre)
      for (std::int64_t i = 0; i < width; ++i) centre += widen(x[i]);
      centre *= inverse;
      mean[row] = centre;
    }
    float square = 0;
#pragma omp simd reduction(+ : square)
    for (std::int64_t i = 0; i < width; ++i) {
      const float d = widen(x[i]) - centre;
      square += d * d;
    }
    const float r = 1.0F / std::sqrt(square * inverse + static_cast<float>(epsilon));
    rstd[row] = r;
    for_vectors(width, [&](auto at) {
      const Vec normed = (at.get(x) - centre) * r * at.get(weight);
      at.set(y, bias != nullptr ? normed + at.get(bias) : normed);
    });
  }
}

template <class T>
void norm_backward(const T* dy, const T* x, const T* weight, const float* mean, const float* rstd, const T* add, T* dx,
                   float* partial, std::int64_t rows, std::int64_t width) {
  const float inverse = 1.0F / static_cast<float>(width);
  float* dweight = partial;
  float* dbias = partial + width;
  for (std::int64_t i = 0; i < 2 * width; ++i) partial[i] = 0;
  for (std::int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const float centre = mean != nullptr ? mean[row] : 0, r = rstd[row];
    float along = 0, sum = 0;
#pragma omp simd reduction(+ : along, sum)
    for (std::int64_t i = 0; i < width; ++i) {
      const float g = widen(dy[i]), normed = (widen(x[i]) - centre) * r;
      dweight[i] += g * normed;
      dbias[i] += g;
      const float scaled = g * widen(weight[i]);
      along += scaled * normed;
      sum += scaled;
    }
    along *= inverse;
    sum = mean != nullptr ? sum * inverse : 0;
    const T* const residual = add != nullptr ? add + row * width : nullptr;
    for_vectors(width, [&](auto at) {
      const Vec normed = (at.get(x) - centre) * r;
      const Vec own = (at.get(dy) * at.get(weight) - sum - normed * along) * r;
      at.set(dx, residual != nullptr ? own + at.get(residual) : own);
    });
  }
}

typedef std::uint64_t Wide __attribute__((vector_size(lanes * 4), may_alias));
typedef std::uint32_t Narrow __attribute__((vector_size(lanes * 2), aligned(4), may_alias));

/// Product of the low halves of each 64-bit lane; the high halves do not matter.
inline Wide multiply_low(Wide a, Wide b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Wide>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<Wide>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffU) * (b & 0xffffffffU);
#endif
}

/// 16 Philox4x32-10 blocks `first` + lane: words[16·w + lane] is word w.
inline void philox_words(std::uint32_t first, const RandomName& name, std::uint32_t* words) {
  constexpr int wide = lanes / 2;
  Wide lane{};
  for (int i = 0; i < wide; ++i) lane[i] = static_cast<std::uint64_t>(i);
  for (int part = 0; part < 16; part += wide) {
    Wide c0 = lane + (first + static_cast<std::uint64_t>(part)), c1 = Wide{} + name.second, c2 = Wide{} + name.third;
    Wide c3 = Wide{} + name.fourth;
    std::uint64_t key0 = name.seed & 0xffffffffU, key1 = name.seed >> 32;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const Wide a = multiply_low(c0, Wide{} + 0xD2511F53U), b = multiply_low(c2, Wide{} + 0xCD9E8D57U);
      c0 = (b >> 32) ^ c1 ^ key0;
      c1 = b;
      c2 = (a >> 32) ^ c3 ^ key1;
      c3 = a;
      key0 = (key0 + 0x9E3779B9U) & 0xffffffffU;
      key1 = (key1 + 0xBB67AE85U) & 0xffffffffU;
    }
    int word = 0;
    for (const Wide& c : {c0, c1, c2, c3}) {
      *reinterpret_cast<Narrow*>(words + 16 * word++ + part) = __builtin_convertvector(c, Narrow);
    }
  }
}

/// 32 elements under the halves of 16 words.
template <class T>
inline void keep_or_drop(const std::uint32_t* words, std::uint32_t threshold, float scale, const T* base,
                         const T* branch, const T* bias, T* out) {
#pragma omp simd
  for (int i = 0; i < 16; ++i) {
    const float low = widen(branch[i]) + widen(bias[i]), high = widen(branch[16 + i]) + widen(bias[16 + i]);
    out[i] = narrow<T>(widen(base[i]) + ((words[i] & 0xffffU) >= threshold ? low * scale : 0.0F));
    out[16 + i] = narrow<T>(widen(base[16 + i]) + ((words[i] >> 16) >= threshold ? high * scale : 0.0F));
  }
}

template <class T>
void dropout_add(const T* base, const T* branch, const T* bias, T* out, std::int64_t begin, std::int64_t end,
                 std::int64_t width, const DropoutMask& mask) {
  const float scale = 65536.0F / static_cast<float>(65536U - mask.threshold);
  alignas(64) std::uint32_t words[64] = {};
  const T zeros[32] = {};
  T part_base[32] = {}, part_branch[32] = {}, part_bias[32] = {}, part_out[32];
  std::int64_t column = bias != nullptr ? begin % width : 0;
  for (std::int64_t at = begin; at < end; at += 32) {
    if (at % 128 == 0 && mask.threshold > 0) philox_words(static_cast<std::uint32_t>(at / 8), mask.name, words);
    const std::uint32_t* own = words + at % 128 / 2;
    const bool whole = at + 32 <= end && (bias == nullptr || column + 32 <= width);
    if (whole) {
      keep_or_drop(own, mask.threshold, scale, base != nullptr ? base + at : zeros, branch + at,
                   bias != nullptr ? bias + column : zeros, out + at);
    } else {  // an end, of the tensor or of a row
      const std::int64_t count = std::min<std::int64_t>(32, end - at);
      for (std::int64_t i = 0; i < count; ++i) {
        if (base != nullptr) part_base[i] = base[at + i];
        part_branch[i] = branch[at + i];
        if (bias != nullptr) part_bias[i] = bias[(column + i) % width];
      }
      keep_or_drop(own, mask.threshold, scale, part_base, part_branch, part_bias, part_out);
      std::copy(part_out, part_out + count, out + at);
    }
    if (bias != nullptr) {
      column += 32;
      while (column >= width) column -= width;
    }
  }
}

template <class T>
void add_noise(T* x, const float* scales, std::int64_t begin, std::int64_t end, std::int64_t width,
               const RandomName& name) {
  alignas(64) std::uint32_t words[64] = {};
  float uniform[128];
  for (std::int64_t at = begin; at < end; at += 128) {
    philox_words(static_cast<std::uint32_t>(at / 8), name, words);
    for (int word = 0; word < 4; ++word) {
#pragma omp simd
      for (int i = 0; i < 16; ++i) {
        const std::uint32_t both = words[16 * word + i];
        uniform[32 * word + i] = (static_cast<float>(both & 0xffffU) + 0.5F) * 0x1p-15F - 1.0F;
        uniform[32 * word + 16 + i] = (static_cast<float>(both >> 16) + 0.5F) * 0x1p-15F - 1.0F;
      }
    }
    const std::int64_t stop = std::min(end, at + 128);
    for (std::int64_t first = at, last = 0; first < stop; first = last) {  // of one row
      last = std::min(stop, (first / width + 1) * width);
      const float scale = scales[first / width];
      const float* const own = uniform + (first - at);
#pragma omp simd
      for (std::int64_t i = 0; i < last - first; ++i) x[first + i] = narrow<T>(widen(x[first + i]) + own[i] * scale);
    }
  }
}

constexpr std::int64_t relu_code = 0, swish_code = 1, gelu_code = 2, swiglu_code = 3, geglu_code = 4;
constexpr bool is_gated(std::int64_t kind) { return kind == swiglu_code || kind == geglu_code; }

inline float gelu(float u) { return 0.5F * u * (1 + std::erf(u * 0.70710678118654752F)); }
inline float gelu_slope(float u) {
  return 0.5F * (1 + std::erf(u * 0.70710678118654752F)) + u * 0.39894228040143268F * fast_exp(-0.5F * u * u);
}
inline Vec swish_slope(Vec u) {
  const Vec s = sigmoid(u);
  return s * (1.0F + u * (1.0F - s));
}
/// Gelu approximated by tanh is u·σ(2·√(2/π)·(u + 0.044715·u³)).
inline Vec sigmoid_of_gelu(Vec u) { return sigmoid(u * (1.59576912160573071F + 0.0713548162726008527F * u * u)); }
inline Vec positive(Vec v) { return v > 0.0F ? v : 0.0F; }

/// One row of anything but relu. Never inlined: what the backward pass computes again has the same bits.
template <class T>
[[gnu::noinline]] void activate_row(const T* u, T* y, std::int64_t out_width, std::int64_t kind) {
  if (kind == swish_code) {
    for_vectors(out_width, [&](auto at) { at.set(y, at.get(u) * sigmoid(at.get(u))); });
  } else if (kind == gelu_code) {
    for (std::int64_t i = 0; i < out_width; ++i) y[i] = narrow<T>(gelu(widen(u[i])));
  } else if (kind == swiglu_code) {
    const T* up = u + out_width;
    for_vectors(out_width, [&](auto at) { at.set(y, at.get(u) * sigmoid(at.get(u)) * at.get(up)); });
  } else {
    const T* up = u + out_width;
    for_vectors(out_width, [&](auto at) { at.set(y, at.get(u) * sigmoid_of_gelu(at.get(u)) * at.get(up)); });
  }
}

template <class T>
void activation(T* u, const T* bias, T* y, std::int64_t rows, std::int64_t width, std::int64_t kind) {
  const std::int64_t out_width = is_gated(kind) ? width / 2 : width;
  for (std::int64_t row = 0; row < rows; ++row, u += width, y += out_width) {
    if (kind == relu_code) {
      for_vectors(width, [&](auto at) { at.set(y, positive(bias != nullptr ? at.get(u) + at.get(bias) : at.get(u))); });
      continue;
    }
    if (bias != nullptr) for_vectors(width, [&](auto at) { at.set(u, at.get(u) + at.get(bias)); });
    activate_row(u, y, out_width, kind);
  }
}

template <class T>
void activation_backward(const T* dy, const T* saved, T* du, T* again, float* partial, std::int64_t rows,
                         std::int64_t width, std::int64_t kind) {
  const std::int64_t out_width = is_gated(kind) ? width / 2 : width;
  if (partial != nullptr) std::fill(partial, partial + width, 0.0F);
  for (std::int64_t row = 0; row < rows; ++row, dy += out_width, saved += width, du += width) {
    if (again != nullptr) activate_row(saved, again + row * out_width, out_width, kind);
    if (kind == relu_code) {
      for_vectors(width, [&](auto at) { at.set(du, at.get(saved) > 0.0F ? at.get(dy) : 0.0F); });
    } else if (kind == swish_code) {
      for_vectors(width, [&](auto at) { at.set(du, at.get(dy) * swish_slope(at.get(saved))); });
    } else if (kind == gelu_code) {
      for (std::int64_t i = 0; i < width; ++i) du[i] = narrow<T>(widen(dy[i]) * gelu_slope(widen(saved[i])));
    } else if (kind == swiglu_code) {
      const T* up = saved + out_width;
      T* const dup = du + out_width;
      for_vectors(out_width, [&](auto at) {
        const Vec gate = at.get(saved), g = at.get(dy), s = sigmoid(gate);
        at.set(du, g * at.get(up) * s * (1.0F + gate * (1.0F - s)));
        at.set(dup, g * gate * s);
      });
    } else {
      const T* up = saved + out_width;
      T* const dup = du + out_width;
      for_vectors(out_width, [&](auto at) {
        const Vec gate = at.get(saved), g = at.get(dy), s = sigmoid_of_gelu(gate);
        const Vec slope = 1.59576912160573071F + 3.0F * 0.0713548162726008527F * gate * gate;
        at.set(du, g * at.get(up) * s * (1.0F + gate * (1.0F - s) * slope));
        at.set(dup, g * gate * s);
      });
    }
    if (partial == nullptr) continue;
    for_vectors(width, [&](auto at) { at.set(partial, at.get(partial) + at.get(du)); });
  }
}

template <class T>
void column_sum(const T* x, float* partial, std::int64_t rows, std::int64_t width) {
  std::fill(partial, partial + width, 0.0F);
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * width) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      partial[i] += (widen(x[i]) + widen(x[width + i])) + (widen(x[2 * width + i]) + widen(x[3 * width + i]));
    }
  }
  for (; row < rows; ++row, x += width) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) partial[i] += widen(x[i]);
  }
}

template <class T>
void rotate(T* x, const float* cosine, const float* sine, float sign, std::int64_t heads, std::int64_t head_stride,
            std::int64_t half) {
  for (std::int64_t head = 0; head < heads; ++head, x += head_stride) {
    T* const second = x + half;
    for_vectors(half, [&](auto at) {
      const Vec a = at.get(x), b = at.get(second), c = at.get(cosine), s = sign * at.get(sine);
      at.set(x, a * c - b * s);
      at.set(second, b * c + a * s);
    });
  }
}

template <class T>
void embed(const T* row, const float* position, T* out, float scale, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    out[i] = narrow<T>(widen(row[i]) * scale + (position != nullptr ? position[i] : 0.0F));
}

template <class T>
void add_scaled(const T* x, float* sum, float scale, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) sum[i] += widen(x[i]) * scale;
}

template <class T>
CrossEntropyRow cross_entropy(float* logits, const T* bias, T* gradient, float* dbias, std::int64_t width,
                              std::int64_t label, double label_smoothing, double z, double truncation, double scale) {
  float highest = -std::numeric_limits<float>::infinity(), sum = 0;
  if (bias != nullptr) {
#pragma omp simd reduction(max : highest) reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i) {
      const float v = logits[i] + widen(bias[i]);
      logits[i] = v;
      sum += v;
      highest = v > highest ? v : highest;
    }
  } else {
#pragma omp simd reduction(max : highest) reduction(+ : sum)
    for (std::int64_t i = 0; i < width; ++i) {
      sum += logits[i];
      highest = logits[i] > highest ? logits[i] : highest;
    }
  }
  const float at_label = logits[label];
  const bool right = at_label == highest && std::find(logits, logits + label, highest) == logits + label;
  Vec totals{};
  for_vectors(width, [&](auto at) {
    const Vec e = at.or_else(fast_exp(at.get(logits) - highest), 0);
    if (gradient != nullptr || truncation > 0) at.set(logits, e);
    totals += e;
  });
  const float total = sum_of(totals);
  const double lse = static_cast<double>(highest) + std::log(static_cast<double>(total));
  const double nll = lse - static_cast<double>(at_label), mean = static_cast<double>(sum) / static_cast<double>(width);
  if (truncation > 0) {
    Vec squares{};
    for_vectors(width, [&](auto at) { squares += at.get(logits) * at.get(logits); });
    const double whole = static_cast<double>(total);
    const double error = static_cast<double>(sum_of(squares)) / (whole * whole) - 2 * std::exp(-nll) + 1;
    if (std::min(error, 2.0) > truncation * truncation) {  // never with NaN, which min() passes on
      if (gradient != nullptr) fill_zero(gradient, width);
      return {nll, 0, right, false};
    }
  }
  const double loss = (1 - label_smoothing) * nll + label_smoothing * (lse - mean) + z * lse * lse;
  if (gradient != nullptr) {
    const auto factor = static_cast<float>(scale * (1 + 2 * z * lse) / static_cast<double>(total));
    const auto uniform = static_cast<float>(scale * label_smoothing / static_cast<double>(width));
    const auto hit = static_cast<float>(scale * (1 - label_smoothing));
    logits[label] -= hit / factor;
    for_vectors(width, [&](auto at) {  // the gradient may lie on logits that have been read
      const Vec g = at.get(logits) * factor - uniform;
      if (dbias != nullptr) at.set(dbias, at.get(dbias) + g);
      at.set(gradient, g);
    });
  }
  return {nll, loss, right, true};
}

void sum_partials(const float* partials, float* target, std::int64_t count, std::int64_t stride, std::int64_t width,
                  bool accumulate) {
  for (std::int64_t k = 0; k < count; ++k, partials += stride) {
    if (k == 0 && !accumulate) {
      std::copy(partials, partials + width, target);
      continue;
    }
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) target[i] += partials[i];
  }
  if (count == 0 && !accumulate) std::fill(target, target + width, 0.0F);
}
