#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/cpu/table.hpp"
#include "kernels/gemm.hpp"

/// How matrix products are cut into tasks. For .cpp files of this folder.
namespace argosy::kernels::cpu {

constexpr std::int64_t tile_rows = 128;     // of the result in a task
constexpr std::int64_t tile_columns = 256;  // in a task that keeps its sums apart

inline std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// A micro-kernel is generated for each shape, so rows come in few sizes: a multiple of 16, then powers of two.
inline std::int64_t next_rows(std::int64_t left) {
  if (left >= 16) return left / 16 * 16;
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(left)));
}

/// Tiles of about equal height, as many for each thread; columns are cut where rows alone are too few.
class Tiles {
 public:
  /// A tile has at most `most_rows`, a multiple of `unit`, and so many columns.
  Tiles(std::int64_t rows, std::int64_t columns, std::int64_t most_columns, std::int64_t most_rows = tile_rows,
        std::int64_t unit = 16)
      : rows_(rows), columns_(columns) {
    const std::int64_t threads = at::get_num_threads(), wanted = round_up((rows + most_rows - 1) / most_rows, threads);
    height_ = std::clamp(round_up((rows + wanted - 1) / wanted, unit), round_up(32, unit), most_rows);
    down_ = (rows + height_ - 1) / height_;
    const std::int64_t ranges = (threads + down_ - 1) / down_;
    width_ = std::min(most_columns, round_up((columns + ranges - 1) / ranges, panel_columns));
    across_ = (columns + width_ - 1) / width_;
  }
  [[nodiscard]] std::int64_t count() const { return down_ * across_; }
  struct Tile {
    std::int64_t row, rows, column, columns;
  };
  [[nodiscard]] Tile at(std::int64_t task) const {
    const std::int64_t row = task / across_ * height_, column = task % across_ * width_;
    return {row, std::min(height_, rows_ - row), column, std::min(width_, columns_ - column)};
  }

 private:
  std::int64_t rows_, columns_, height_ = 0, width_ = 0, down_ = 0, across_ = 0;
};

/// gemm_int8.cpp
[[nodiscard]] PackedMatrix pack_matrix_int8(const at::Tensor& matrix);
Gemm gemm_int8;

}  // namespace argosy::kernels::cpu
