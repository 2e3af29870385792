// Operands of matrix products in the order in which the micro-kernels read them, and their results stored. Included by
// table.ipp inside its namespace.

#if defined(__AVX512F__)
/// The words of 16 vectors, transposed: lane i of rows[j] becomes lane j of rows[i].
inline void transpose_16(__m512i* rows) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int k = 0; k < 16; k += 2) {
    t[k] = _mm512_unpacklo_epi32(rows[k], rows[k + 1]);
    t[k + 1] = _mm512_unpackhi_epi32(rows[k], rows[k + 1]);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 16; k += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      rows[k + 2 * j] = _mm512_unpacklo_epi64(t[k + j], t[k + j + 2]);
      rows[k + 2 * j + 1] = _mm512_unpackhi_epi64(t[k + j], t[k + j + 2]);
    }
  }
#pragma GCC unroll 2
  for (int k = 0; k < 16; k += 8) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      t[k + j] = _mm512_shuffle_i32x4(rows[k + j], rows[k + j + 4], 0x88);
      t[k + j + 4] = _mm512_shuffle_i32x4(rows[k + j], rows[k + j + 4], 0xdd);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    rows[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    rows[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    rows[j + 4] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0x88);
    rows[j + 12] = _mm512_shuffle_i32x4(t[j + 4], t[j + 12], 0xdd);
  }
}
#endif

/// 32-bit words: out[j, i] = in[i, j]. Strides in bytes. Not inlined: GCC would warn of loops that some sizes never
/// reach.
[[gnu::noinline]] inline void transpose_words(const void* in, std::int64_t in_stride, std::int64_t rows,
                                              std::int64_t columns, void* out, std::int64_t out_stride) {
  const auto from = [=](std::int64_t i, std::int64_t j) {
    return static_cast<const char*>(in) + i * in_stride + 4 * j;
  };
  const auto to = [=](std::int64_t i, std::int64_t j) { return static_cast<char*>(out) + j * out_stride + 4 * i; };
  for (std::int64_t first = 0; first < columns; first += 64) {  // a block of the output stays in the inner cache
    const std::int64_t last = std::min(columns, first + 64);
    std::int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= rows && (last - first) % 16 == 0; i += 16) {
      for (std::int64_t j = first; j < last; j += 16) {
        __m512i words[16];
#pragma GCC unroll 16
        for (int k = 0; k < 16; ++k) words[k] = _mm512_loadu_si512(from(i + k, j));
        transpose_16(words);
#pragma GCC unroll 16
        for (int k = 0; k < 16; ++k) _mm512_storeu_si512(to(i, j + k), words[k]);
      }
    }
#endif
#if defined(__AVX2__)
    for (; i + 8 <= rows; i += 8) {
      std::int64_t j = first;
      for (; j + 8 <= last; j += 8) {
        __m256 r[8], t[8];
#pragma GCC unroll 8
        for (int k = 0; k < 8; ++k) r[k] = _mm256_loadu_ps(reinterpret_cast<const float*>(from(i + k, j)));
#pragma GCC unroll 4
        for (int k = 0; k < 8; k += 2) {
          t[k] = _mm256_unpacklo_ps(r[k], r[k + 1]);
          t[k + 1] = _mm256_unpackhi_ps(r[k], r[k + 1]);
        }
#pragma GCC unroll 2
        for (int k = 0; k < 8; k += 4) {
          r[k] = _mm256_shuffle_ps(t[k], t[k + 2], 0x44);
          r[k + 1] = _mm256_shuffle_ps(t[k], t[k + 2], 0xee);
          r[k + 2] = _mm256_shuffle_ps(t[k + 1], t[k + 3], 0x44);
          r[k + 3] = _mm256_shuffle_ps(t[k + 1], t[k + 3], 0xee);
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          _mm256_storeu_ps(reinterpret_cast<float*>(to(i, j + k)), _mm256_permute2f128_ps(r[k], r[k + 4], 0x20));
          _mm256_storeu_ps(reinterpret_cast<float*>(to(i, j + k + 4)), _mm256_permute2f128_ps(r[k], r[k + 4], 0x31));
        }
      }
      for (; j < last; ++j) {
        for (int k = 0; k < 8; ++k) std::memcpy(to(i + k, j), from(i + k, j), 4);
      }
    }
#endif
    for (; i < rows; ++i) {
      for (std::int64_t j = first; j < last; ++j) std::memcpy(to(i, j), from(i, j), 4);
    }
  }
}

/// out[i] = {first[i], second[i]}; without `second`, {first[i], 0}.
inline void interleave(const Bf16* first, const Bf16* second, std::int64_t n, float* out) {
  for_vectors(n, [&](auto at) {
    const Bits low = reinterpret_cast<Bits>(at.get(first)) >> 16;
    at.set(out, reinterpret_cast<Vec>(second != nullptr ? low | reinterpret_cast<Bits>(at.get(second)) : low));
  });
}

template <class T>
void pack_panel(const T* matrix, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
                std::int64_t padded, std::int64_t columns, T* panel) {
  constexpr std::int64_t size = sizeof(T), together = 4 / size;
  auto* const out = reinterpret_cast<std::uint32_t*>(panel);
  const std::int64_t whole = rows / together;
  if (column_stride == 1) {
    for (std::int64_t k = 0; k * together < rows; ++k) {
      const T* row = matrix + k * together * row_stride;
      if constexpr (together == 1) {
        std::memcpy(out + k * panel_columns, row, static_cast<std::size_t>(4 * columns));
      } else {
        interleave(row, k < whole ? row + row_stride : nullptr, columns,
                   reinterpret_cast<float*>(out + k * panel_columns));
      }
    }
  } else {
    transpose_words(matrix, column_stride * size, columns, whole, out, 4 * panel_columns);
    if constexpr (together == 2) {
      for (std::int64_t j = 0; j < columns && whole * together < rows; ++j)
        out[whole * panel_columns + j] = matrix[j * column_stride + rows - 1].bits;
    }
  }
  const std::int64_t used = (rows + together - 1) / together;
  std::fill(out + used * panel_columns, out + padded / together * panel_columns, 0U);
}

inline void pack_rows(const Bf16* matrix, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
                      std::int64_t columns, std::int64_t padded, Bf16* out, std::int64_t out_stride) {
  constexpr std::int64_t size = sizeof(Bf16);
  if (column_stride == 1) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(out + i * out_stride, matrix + i * row_stride, static_cast<std::size_t>(size * columns));
  } else {
    std::int64_t done = 0;  // rows
#if defined(__AVX512F__)
    for (; done + 32 <= rows; done += 32) {
      for (std::int64_t k = 0; k < columns; k += 32) {
        // Lanes of 128 bits hold rows 0 to 3, 8 to 11, 16 to 19, 24 to 27 in `low`, and the others in `high`.
        __m512i low[16], high[16];
#pragma GCC unroll 16
        for (int p = 0; p < 16; ++p) {
          const auto column = [&](std::int64_t c) {
            return c < columns ? _mm512_loadu_si512(matrix + done + c * column_stride) : _mm512_setzero_si512();
          };
          const __m512i first = column(k + 2 * p), second = column(k + 2 * p + 1);
          low[p] = _mm512_unpacklo_epi16(first, second);
          high[p] = _mm512_unpackhi_epi16(first, second);
        }
        transpose_16(low);
        transpose_16(high);
        // Columns after the last are zeros, for which `padded` has room but for what is masked.
        const std::int64_t pairs = std::min<std::int64_t>(16, (columns - k + 1) / 2);
        const auto mask = static_cast<std::uint16_t>((1U << pairs) - 1);
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) {
          Bf16* const to = out + (done + r / 4 * 8 + r % 4) * out_stride + k;
          _mm512_mask_storeu_epi32(to, mask, low[r]);
          _mm512_mask_storeu_epi32(to + 4 * out_stride, mask, high[r]);
        }
      }
    }
#endif
    constexpr std::int64_t some = 8, most = 128;  // pairs of columns, rows
    alignas(64) float pairs[some * most];
    for (std::int64_t first = done; first < rows; first += most) {
      const std::int64_t count = std::min(most, rows - first);
      for (std::int64_t k = 0; k < columns; k += 2 * some) {
        const std::int64_t here = std::min(some, (columns - k + 1) / 2);
        for (std::int64_t p = 0; p < here; ++p) {
          const Bf16* column = matrix + first + (k + 2 * p) * column_stride;
          interleave(column, k + 2 * p + 1 < columns ? column + column_stride : nullptr, count, pairs + p * most);
        }
        // An odd last pair ends with a zero, for which `padded` has room.
        transpose_words(pairs, 4 * most, here, count, out + first * out_stride + k, out_stride * size);
      }
    }
  }
  for (std::int64_t i = 0; i < rows && columns < padded; ++i)
    std::fill(out + i * out_stride + columns, out + i * out_stride + padded, Bf16{});
}

/// out[i, 0 .. columns) in fp32: of rows whose elements follow each other, or of such columns.
inline void widen(const Bf16* matrix, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
                  std::int64_t columns, float* out, std::int64_t out_stride) {
  const auto widen_run = [](const Bf16* from, std::int64_t n, float* to) {
    for_vectors(n, [&](auto at) { at.set(to, at.get(from)); });
  };
  if (column_stride == 1) {
    for (std::int64_t i = 0; i < rows; ++i) widen_run(matrix + i * row_stride, columns, out + i * out_stride);
    return;
  }
  constexpr std::int64_t some = 16, most = 128;  // columns, rows of a block
  alignas(64) float block[some * most];
  for (std::int64_t i = 0; i < rows; i += most) {
    const std::int64_t count = std::min(most, rows - i);
    for (std::int64_t k = 0; k < columns; k += some) {
      const std::int64_t here = std::min(some, columns - k);
      for (std::int64_t c = 0; c < here; ++c) widen_run(matrix + i + (k + c) * column_stride, count, block + c * most);
      transpose_words(block, 4 * most, here, count, out + i * out_stride + k, 4 * out_stride);
    }
  }
}

inline void pack_panel_wide(const Bf16* matrix, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
                            std::int64_t padded, std::int64_t columns, float* panel) {
  widen(matrix, row_stride, column_stride, rows, columns, panel, panel_columns);
  std::fill(panel + rows * panel_columns, panel + padded * panel_columns, 0.0F);
}

inline void pack_rows_wide(const Bf16* matrix, std::int64_t row_stride, std::int64_t rows, std::int64_t columns,
                           std::int64_t padded, float* out, std::int64_t out_stride) {
  widen(matrix, row_stride, 1, rows, columns, out, out_stride);
  for (std::int64_t i = 0; i < rows && columns < padded; ++i)
    std::fill(out + i * out_stride + columns, out + i * out_stride + padded, 0.0F);
}

template <class T>
void store_tile(const float* tile, std::int64_t tile_stride, T* out, std::int64_t out_stride, std::int64_t rows,
                std::int64_t columns, const T* bias, bool accumulate) {
  for (std::int64_t i = 0; i < rows; ++i, tile += tile_stride, out += out_stride) {
    for_vectors(columns, [&](auto at) {
      Vec v = at.get(tile);
      if (bias != nullptr) v += at.get(bias);
      if (accumulate) v += at.get(out);
      at.set(out, v);
    });
  }
}

template <class T>
float round_row(const T* row, std::int64_t width, std::uint8_t* out, std::int64_t padded_width) {
  constexpr float most = std::numeric_limits<float>::max();
  float highest = 0, strange = 0;
#pragma omp simd reduction(max : highest, strange)
  for (std::int64_t i = 0; i < width; ++i) {
    const float size = std::abs(widen(row[i]));
    highest = size > highest ? size : highest;
    const float is_strange = size <= most ? 0.0F : 1.0F;
    strange = is_strange > strange ? is_strange : strange;
  }
  const bool finite = strange == 0;
  const float inverse = finite && highest > 127 / most ? 127 / highest : 0;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) {
    const float value = finite ? widen(row[i]) * inverse : 0;
    out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::nearbyint(value)) + 128);
  }
  std::fill(out + width, out + padded_width, std::uint8_t{128});
  return finite ? highest / 127 : std::numeric_limits<float>::quiet_NaN();
}

inline void scale_tile(const std::int32_t* sums, float* out, std::int64_t stride, std::int64_t rows,
                       std::int64_t columns, const float* row_scales, const float* column_scales,
                       const std::int32_t* column_sums) {
  for (std::int64_t i = 0; i < rows; ++i, sums += stride, out += stride) {
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      out[j] = static_cast<float>(sums[j] - 128 * column_sums[j]) * (row_scales[i] * column_scales[j]);
  }
}
