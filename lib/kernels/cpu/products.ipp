// Products of blocks that are in the cache, for attention: fp32, or bf16 where the processor multiplies pairs of it.
// Included by table.ipp inside its namespace.

/// What products read. A word of 32 bits is one fp32, or two bf16 that follow each other along the depth.
#if defined(__AVX512BF16__)
template <class T>
using Operand = T;
#else
template <class T>
using Operand = float;
#endif
template <class T>
constexpr std::int64_t together = 4 / sizeof(Operand<T>);  // numbers in a word
template <class T>
inline std::int64_t words(std::int64_t n) {
  return (n + together<T> - 1) / together<T>;
}

/// sum += left·right, of a word.
template <class T>
inline Vec multiply_add(Vec sum, const float* left, Vec right) {
#if defined(__AVX512BF16__)
  if constexpr (together<T> == 2) {
    std::int32_t pair = 0;
    std::memcpy(&pair, left, sizeof pair);
    return reinterpret_cast<Vec>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                  reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)),
                                                  reinterpret_cast<__m512bh>(right)));
  }
#endif
  return sum + *left * right;
}

/// C[rows, vectors·lanes] = scale·A·B, or C += A·B. a(i, k) = a[i·ai + k·ak] and B are words, `depth` of them; B, C
/// row-major with padded rows.
template <class T, int tile_rows, int tile_vectors, bool adds>
inline void tile(std::int64_t depth, const float* a, std::int64_t ai, std::int64_t ak, const float* b, std::int64_t ldb,
                 float* c, std::int64_t ldc, float scale) {
  Vec sum[tile_rows][tile_vectors];
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) sum[i][j] = adds ? load(c + i * ldc + j * lanes) : Vec{};
  }
  for (std::int64_t k = 0; k < depth; ++k, b += ldb) {
    Vec right[tile_vectors];
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) right[j] = load(b + j * lanes);
#pragma GCC unroll 8
    for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < tile_vectors; ++j) sum[i][j] = multiply_add<T>(sum[i][j], a + i * ai + k * ak, right[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) store(c + i * ldc + j * lanes, adds ? sum[i][j] : sum[i][j] * scale);
  }
}

template <class T, int tile_vectors, bool adds>
inline void panel(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t ai, std::int64_t ak,
                  const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float scale) {
  std::int64_t i = 0;
  for (; i + 6 <= rows; i += 6)
    tile<T, 6, tile_vectors, adds>(depth, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, scale);
  for (; i + 3 <= rows; i += 3)
    tile<T, 3, tile_vectors, adds>(depth, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, scale);
  for (; i < rows; ++i) tile<T, 1, tile_vectors, adds>(depth, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, scale);
}

template <class T, bool adds>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, std::int64_t ai,
              std::int64_t ak, const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float scale = 1) {
  std::int64_t j = 0;
  if constexpr (lanes == 16) {  // which comes with 32 registers
    for (; j + 4 * lanes <= columns; j += 4 * lanes)
      panel<T, 4, adds>(rows, depth, a, ai, ak, b + j, ldb, c + j, ldc, scale);
  }
  for (; j + 3 * lanes <= columns; j += 3 * lanes)
    panel<T, 3, adds>(rows, depth, a, ai, ak, b + j, ldb, c + j, ldc, scale);
  for (; j + 2 * lanes <= columns; j += 2 * lanes)
    panel<T, 2, adds>(rows, depth, a, ai, ak, b + j, ldb, c + j, ldc, scale);
  for (; j < columns; j += lanes) panel<T, 1, adds>(rows, depth, a, ai, ak, b + j, ldb, c + j, ldc, scale);
}
