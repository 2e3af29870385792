// Flat loops of the optimizer. Included by table.ipp inside its namespace.

/// One element's update: moments in place, the new value is returned.
struct AdamwUpdate {
  explicit AdamwUpdate(const AdamwTerms& t)
      : coefficient(t.coefficient),
        b1(static_cast<float>(t.beta1)),
        b2(static_cast<float>(t.beta2)),
        a1(static_cast<float>(1 - t.beta1)),
        a2(static_cast<float>(1 - t.beta2)),
        eps(static_cast<float>(t.epsilon)),
        keep(static_cast<float>(1 - t.lr * t.weight_decay)),
        rate(static_cast<float>(t.lr / t.correction1)),
        spread(static_cast<float>(1 / t.correction2)) {}
  float operator()(float value, float& m, float& v, float gradient) const {
    const float g = gradient * coefficient;
    const float new_m = m * b1 + g * a1, new_v = v * b2 + g * g * a2;
    m = new_m;
    v = new_v;
    return value * keep - rate * new_m / (std::sqrt(new_v * spread) + eps);
  }
  float coefficient, b1, b2, a1, a2, eps, keep, rate, spread;
};

void adamw(float* master, float* m, float* v, const float* gradient, Bf16* weights, std::int64_t n,
           const AdamwTerms& terms) {
  const AdamwUpdate update(terms);
  if (weights == nullptr) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) master[i] = update(master[i], m[i], v[i], gradient[i]);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      const float value = update(master[i], m[i], v[i], gradient[i]);
      master[i] = value;
      weights[i] = narrow<Bf16>(value);
    }
  }
}

void adamw_stochastic(Bf16* weights, float* m, float* v, const float* gradient, std::int64_t begin, std::int64_t n,
                      const AdamwTerms& terms, const RandomName& name) {
  const AdamwUpdate update(terms);
  alignas(64) std::uint32_t words[64];
  alignas(64) std::uint32_t bits[128] = {};
  for (std::int64_t at = 0; at < n; at += 128, weights += 128, m += 128, v += 128, gradient += 128) {
    const std::int64_t count = std::min<std::int64_t>(128, n - at);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      bits[i] = std::bit_cast<std::uint32_t>(update(widen(weights[i]), m[i], v[i], gradient[i]));
    }
    philox_words(static_cast<std::uint32_t>((begin + at) / 8), name, words);
    for (int k = 0; k < 8; ++k) {
      std::uint32_t* const part = bits + 16 * k;
      const std::uint32_t* const word = words + 16 * (k / 2);
      const int shift = 16 * (k % 2);
#pragma omp simd
      for (int lane = 0; lane < 16; ++lane) part[lane] = round_stochastically(part[lane], word[lane] >> shift);
    }
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) weights[i].bits = static_cast<std::uint16_t>(bits[i] >> 16);
  }
}

void ema(float* mean, const float* values, std::int64_t n, float share) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) mean[i] += share * (values[i] - mean[i]);
}

double sum_of_squares(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += 128) {
    const std::int64_t count = std::min<std::int64_t>(128, n - begin);
    double block = 0;
#pragma omp simd reduction(+ : block)
    for (std::int64_t i = 0; i < count; ++i)
      block += static_cast<double>(x[begin + i]) * static_cast<double>(x[begin + i]);
    sum += block;
  }
  return sum;
}
