// Products of blocks that are in the cache: for attention in fp32, or in bf16 where the processor multiplies pairs of
// it; and in fp32 with the columns of a matrix. Included by table.ipp inside its namespace.

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
#pragma GCC unroll 12
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) sum[i][j] = adds ? load(c + i * ldc + j * lanes) : Vec{};
  }
  for (std::int64_t k = 0; k < depth; ++k, b += ldb) {
    Vec right[tile_vectors];
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) right[j] = load(b + j * lanes);
#pragma GCC unroll 12
    for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < tile_vectors; ++j) sum[i][j] = multiply_add<T>(sum[i][j], a + i * ai + k * ak, right[j]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < tile_vectors; ++j) store(c + i * ldc + j * lanes, adds ? sum[i][j] : sum[i][j] * scale);
  }
}

// Sums stay in registers: of 32 of AVX-512, or of 16.
constexpr int most_rows = lanes == 16 ? 8 : 6, most_vectors = lanes == 16 ? 3 : 2;

template <class T, int tile_vectors, bool adds>
inline void panel(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t ai, std::int64_t ak,
                  const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float scale) {
  std::int64_t i = 0;
  const auto tiles_of = [&](auto count) {
    for (; i + count <= rows; i += count)
      tile<T, count, tile_vectors, adds>(depth, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, scale);
  };
  tiles_of(std::integral_constant<int, most_rows>{});
  tiles_of(std::integral_constant<int, most_rows / 2>{});
  tiles_of(std::integral_constant<int, 1>{});
}

#if defined(__AMX_BF16__)
#include "kernels/cpu/products_amx.ipp"
#else
struct TilesReleased {};
#endif

template <class T, bool adds>
void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, std::int64_t ai,
              std::int64_t ak, const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float scale = 1) {
#if defined(__AMX_BF16__)
  if constexpr (together<T> == 2) {
    multiply_by_tiles<adds>(rows, columns, depth, a, ai, ak, b, ldb, c, ldc, scale);
    return;
  }
#endif
  const auto panel_of = [&](auto vectors, std::int64_t j) {
    panel<T, vectors, adds>(rows, depth, a, ai, ak, b + j, ldb, c + j, ldc, scale);
  };
  for (std::int64_t j = 0, vectors = 0; j < columns; j += vectors * lanes) {
    const std::int64_t left = (columns - j) / lanes;
    if (most_vectors == 3 && left >= 3 && left != 4) {  // 4 are 2 and 2
      panel_of(std::integral_constant<int, most_vectors>{}, j);
      vectors = most_vectors;
    } else if (left >= 2) {
      panel_of(std::integral_constant<int, 2>{}, j);
      vectors = 2;
    } else {
      panel_of(std::integral_constant<int, 1>{}, j);
      vectors = 1;
    }
  }
}

/// The next `count` lines. All at once, they would hold up the products.
inline void fetch(Lines& lines, std::int64_t count) {
  for (; count > 0 && lines.row < lines.rows; --count) {
    __builtin_prefetch(lines.from + lines.row * lines.stride + lines.line * 64, 0, 2);
    if (++lines.line == lines.in_row) lines.line = 0, ++lines.row;
  }
}

/// See Table. A transposed copy of `a` would cost more than a fifth of the product.
inline void multiply_columns(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                             std::int64_t a_row, const float* b, std::int64_t b_row, float* c, std::int64_t c_row,
                             bool accumulate, Lines& ahead) {
  constexpr int most = lanes == 16 ? 4 : 2;  // vectors of a tile
  float part[6 * most * lanes];              // of columns that are no whole vectors
  const auto tiles_of = [&](auto adds, auto count, auto vectors, std::int64_t& i, std::int64_t j) {
    constexpr std::int64_t width = vectors * lanes;
    static_assert(count * width <= 6 * most * lanes);
    const std::int64_t here = std::min(width, columns - j),
                       fetched = (ahead.share * count * here + rows * columns - 1) / (rows * columns);
    for (; i + count <= rows; i += count) {
      fetch(ahead, fetched);
      float* const to = c + i * c_row + j;
      const auto multiplies = [&](float* out, std::int64_t out_row) {
        tile<float, count, vectors, adds>(depth, a + i, 1, a_row, b + j, b_row, out, out_row, 1);
      };
      if (here == width) {
        multiplies(to, c_row);
        continue;
      }
      for (int k = 0; k < count && adds; ++k) std::copy(to + k * c_row, to + k * c_row + here, part + k * width);
      multiplies(part, width);
      for (int k = 0; k < count; ++k) std::copy(part + k * width, part + k * width + here, to + k * c_row);
    }
  };
  const auto all = [&](auto adds) {
    for (std::int64_t j = 0; j < columns; j += most * lanes) {
      std::int64_t i = 0;
      const auto rows_of = [&](auto vectors) {
        tiles_of(adds, std::integral_constant<int, 6 * most / vectors>{}, vectors, i, j);
        tiles_of(adds, std::integral_constant<int, 2>{}, vectors, i, j);
        tiles_of(adds, std::integral_constant<int, 1>{}, vectors, i, j);
      };
      if (columns - j > most / 2 * lanes) {
        rows_of(std::integral_constant<int, most>{});
      } else {
        rows_of(std::integral_constant<int, most / 2>{});
      }
    }
  };
  accumulate ? all(std::true_type{}) : all(std::false_type{});
}
