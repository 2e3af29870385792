// Products of bf16 by AMX, whose registers are tiles of up to 16 rows of 16 words. Included by products.ipp.

constexpr std::int64_t tile_side = 16;  // rows of a tile, and words of a row

/// What the processor is told of its tiles: 0 to 3 hold sums, 4 and 5 a left and a right operand, 6 and 7 the same
/// where the depth ends.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  TileShapes(std::int64_t sum_rows, std::int64_t depth) {
    const auto shape = [this](int tile, std::int64_t count, std::int64_t words) {
      row_bytes[tile] = static_cast<std::uint16_t>(4 * words);
      rows[tile] = static_cast<std::uint8_t>(count);
    };
    for (int tile = 0; tile < 4; ++tile) shape(tile, sum_rows, tile_side);
    shape(4, sum_rows, tile_side);
    shape(5, tile_side, tile_side);
    if (const std::int64_t rest = depth % tile_side; rest > 0) {
      shape(6, sum_rows, rest);
      shape(7, rest, tile_side);
    }
  }
};

/// GCC does not know that the instructions of AMX read memory: what is stored before is in memory from here on.
inline void finish_stores() { asm volatile("" ::: "memory"); }

/// Tiles that no instruction needs any more cost time at each change of threads.
struct TilesReleased {
  TilesReleased() = default;
  TilesReleased(const TilesReleased&) = delete;
  TilesReleased& operator=(const TilesReleased&) = delete;
  ~TilesReleased() { _tile_release(); }
};

/// `down` by `across` tiles of C, the operands' tiles in the registers `left` and `right`.
#define ARGOSY_MULTIPLY_TILES(left, right)         \
  _tile_loadd(left, a, 4 * ai);                    \
  _tile_loadd(right, b, 4 * ldb);                  \
  _tile_dpbf16ps(0, left, right);                  \
  if constexpr (down == 2) {                       \
    _tile_loadd(left, a + tile_side * ai, 4 * ai); \
    _tile_dpbf16ps(2, left, right);                \
  }                                                \
  if constexpr (across == 2) {                     \
    _tile_loadd(right, b + tile_side, 4 * ldb);    \
    if constexpr (down == 2) {                     \
      _tile_dpbf16ps(3, left, right);              \
      _tile_loadd(left, a, 4 * ai);                \
    }                                              \
    _tile_dpbf16ps(1, left, right);                \
  }

template <int down, int across, bool adds>
void multiply_tiles(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t ai, const float* b,
                    std::int64_t ldb, float* c, std::int64_t ldc, float scale) {
  finish_stores();
  float* const lower = c + tile_side * ldc;
  if constexpr (adds) {
    _tile_loadd(0, c, 4 * ldc);
    if constexpr (across == 2) _tile_loadd(1, c + tile_side, 4 * ldc);
    if constexpr (down == 2) _tile_loadd(2, lower, 4 * ldc);
    if constexpr (down == 2 && across == 2) _tile_loadd(3, lower + tile_side, 4 * ldc);
  } else {
    _tile_zero(0);
    if constexpr (across == 2) _tile_zero(1);
    if constexpr (down == 2) _tile_zero(2);
    if constexpr (down == 2 && across == 2) _tile_zero(3);
  }
  for (; depth >= tile_side; depth -= tile_side, a += tile_side, b += tile_side * ldb) {
    ARGOSY_MULTIPLY_TILES(4, 5)
  }
  if (depth > 0) {
    ARGOSY_MULTIPLY_TILES(6, 7)
  }
  _tile_stored(0, c, 4 * ldc);
  if constexpr (across == 2) _tile_stored(1, c + tile_side, 4 * ldc);
  if constexpr (down == 2) _tile_stored(2, lower, 4 * ldc);
  if constexpr (down == 2 && across == 2) _tile_stored(3, lower + tile_side, 4 * ldc);
  if (adds || scale == 1) return;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < across * tile_side; j += lanes) store(c + i * ldc + j, load(c + i * ldc + j) * scale);
}
#undef ARGOSY_MULTIPLY_TILES

/// As multiply(). Where the words of a row of A do not follow each other, the depth is that of one tile at most.
template <bool adds>
void multiply_by_tiles(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, std::int64_t ai,
                       std::int64_t ak, const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float scale) {
  alignas(64) float left[2 * tile_side * tile_side];
  for (std::int64_t i = 0, count = 0; i < rows; i += count) {
    const bool two = rows - i >= 2 * tile_side;
    count = two ? 2 * tile_side : std::min(tile_side, rows - i);
    const TileShapes shapes(std::min(tile_side, count), depth);
    finish_stores();
    _tile_loadconfig(&shapes);
    const float* from = a + i * ai;
    std::int64_t stride = ai;
    if (ak != 1) {
      transpose_words(from, 4 * ak, depth, count, left, 4 * tile_side);
      from = left, stride = tile_side;
    }
    for (std::int64_t j = 0, width = 0; j < columns; j += width) {
      const bool pair = columns - j >= 2 * tile_side;
      width = pair ? 2 * tile_side : tile_side;
      const auto tiles = [&](auto down, auto across) {
        multiply_tiles<down, across, adds>(count, depth, from, stride, b + j, ldb, c + i * ldc + j, ldc, scale);
      };
      constexpr std::integral_constant<int, 1> one;
      constexpr std::integral_constant<int, 2> both;
      if (two) {
        pair ? tiles(both, both) : tiles(both, one);
      } else {
        pair ? tiles(one, both) : tiles(one, one);
      }
    }
  }
}
