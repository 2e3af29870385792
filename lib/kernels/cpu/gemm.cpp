// Matrix products by the micro-kernels of oneDNN (batch-reduce GEMM, which LibTorch offers in CPUBlas.h): they multiply
// blocks that are in the cache; this file cuts the product into blocks, packs operands and distributes blocks over
// threads. All sums along the depth go in one order, so that bits depend on neither blocks nor threads.
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/cpu/access.hpp"
#include "kernels/cpu/tiles.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {
namespace {

/// Such a part of both operands' blocks fits the cache. What is packed as fp32 for each task takes less room.
template <class T, class P>
constexpr std::int64_t depth_step = std::is_same_v<T, P> ? 1024 : 512;
constexpr std::int64_t depth_unit = 32;         // packed operands are padded to a multiple of this
constexpr std::int64_t column_tile_rows = 240;  // of a task of multiply_columns(), which takes 12 or 6 at once
constexpr std::int64_t slow_row_stride = 512;   // at its multiples, rows take each other's place in the caches

auto* as_aten(Bf16* p) { return reinterpret_cast<c10::BFloat16*>(p); }
auto* as_aten(float* p) { return p; }

template <class T>
void micro_kernel(std::int64_t rows, std::int64_t columns, std::int64_t depth, T* a, std::int64_t a_stride, T* panel,
                  std::int64_t panel_stride, float* c, std::int64_t c_stride, bool adds) {
  at::native::cpublas::brgemm(rows, columns, depth, a_stride, panel_stride, c_stride, adds, as_aten(a), as_aten(panel),
                              c, sizeof(T) == 2);
}

/// Whether there are micro-kernels for this processor.
bool has_micro_kernels() { return &table() != table_named("baseline"); }

/// Whether they multiply bf16 as it is. Elsewhere its products are those of fp32.
bool multiplies_bf16() {
  static const bool yes = [] {
    if (&table() != table_named("avx512_bf16") && &table() != table_named("avx512_amx")) return false;
    try {
      Bf16 a[depth_unit] = {}, b[depth_unit * panel_columns] = {};
      float c[panel_columns] = {};
      micro_kernel(1, panel_columns, depth_unit, a, depth_unit, b, panel_columns, c, panel_columns, false);
      return true;
    } catch (const std::exception&) {  // LibTorch's, or oneDNN's
      return false;
    }
  }();
  return yes;
}

/// In what matrices of T are packed and multiplied: P, or fp32.
template <class T, class P>
struct Product {
  T* a;
  std::int64_t rows, columns, depth, a_row, a_column;
  P* b;  // panels of some columns; their distance, and that of their rows
  std::int64_t b_panel, b_row;
  void* c;
  std::int64_t c_row;
  bool is_wide;  // c is fp32
  T* bias;       // or null
  bool accumulate;

  /// The micro-kernels read `a` as it is.
  [[nodiscard]] bool reads_a() const {
    return std::is_same_v<T, P> && a_column == 1 && (std::is_same_v<T, float> || depth % 2 == 0);
  }
  /// As multiply_columns() does.
  [[nodiscard]] bool reads_columns() const { return std::is_same_v<P, float> && a_column != 1; }
  [[nodiscard]] std::int64_t task_rows() const { return reads_columns() ? column_tile_rows : tile_rows; }
  /// Numbers of fp32 for the sums of a task that are not in `c`.
  [[nodiscard]] std::int64_t sums_apart() const { return is_wide ? 0 : task_rows() * tile_columns; }
  [[nodiscard]] P* panel(std::int64_t column, std::int64_t k) const {
    return b + column / panel_columns * b_panel + k * b_row;
  }
};

/// What a task computes: rows [row, row + rows) of columns [column, end_column). Its sums are apart, unless `c` is
/// fp32.
struct Task {
  std::int64_t row, rows, column, end_column;
  float* sums;
  std::int64_t sums_row;
  bool accumulate;  // to these sums
};

/// The sums of a panel, from `column` on, become numbers of `c` while they are in the inner cache.
template <class T, class P>
void store(const Product<T, P>& p, const Task& task, std::int64_t column, std::int64_t columns) {
  float* const sums = task.sums + column - task.column;
  T* const bias = p.bias != nullptr ? p.bias + column : nullptr;
  if (!p.is_wide) {
    table().loops<T>().store_tile(sums, task.sums_row, static_cast<T*>(p.c) + task.row * p.c_row + column, p.c_row,
                                  task.rows, columns, bias, p.accumulate);
  } else if (bias != nullptr) {
    float wide[panel_columns];
    for (std::int64_t j = 0; j < columns; ++j) wide[j] = static_cast<float>(as_aten(bias)[j]);
    table().fp32.store_tile(sums, task.sums_row, sums, task.sums_row, task.rows, columns, wide, false);
  }
}

/// By the micro-kernels, from rows of `a`, or rows in `packed`.
template <class T, class P>
void multiply_rows(const Product<T, P>& p, const Task& task, P* packed) {
  constexpr std::int64_t step = depth_step<T, P>;
  const std::int64_t padded = round_up(p.depth, depth_unit);
  for (std::int64_t k = 0; k < p.depth; k += step) {
    const std::int64_t here = std::min(step, p.depth - k);
    const T* from = p.a + task.row * p.a_row + k * p.a_column;
    P* a = packed;
    std::int64_t a_row = step, reach = std::min(step, padded - k);
    if (p.reads_a()) {
      a = reinterpret_cast<P*>(const_cast<T*>(from)), a_row = p.a_row, reach = here;
    } else if constexpr (std::is_same_v<P, Bf16>) {
      table().pack_rows(from, p.a_row, p.a_column, task.rows, here, reach, packed, step);
    } else if constexpr (std::is_same_v<T, Bf16>) {
      table().pack_rows_wide(from, p.a_row, task.rows, here, reach, packed, step);
    }
    for (std::int64_t part = 0; part < reach;) {
      // What is packed here may have any depth, such as the tokens of a batch: again powers of two.
      const std::int64_t depth =
          p.reads_a() || reach == step
              ? reach
              : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(reach - part)));
      for (std::int64_t column = task.column; column < task.end_column; column += panel_columns) {
        const std::int64_t width = std::min(panel_columns, task.end_column - column);
        for (std::int64_t row = 0, count = 0; row < task.rows; row += count) {
          count = next_rows(task.rows - row);
          micro_kernel(count, width, depth, a + row * a_row + part, a_row, p.panel(column, k + part), p.b_row,
                       task.sums + row * task.sums_row + column - task.column, task.sums_row,
                       task.accumulate || k + part > 0);
        }
        if (k + part + depth >= p.depth) store(p, task, column, width);
      }
      part += depth;
    }
  }
}

/// The same in fp32 where the columns of `a` are contiguous, as in the gradient of weights: there are no rows of it for
/// a micro-kernel.
template <class T>
void multiply_columns(const Product<T, float>& p, const Task& task, float* packed) {
  constexpr std::int64_t step = 112;  // of a panel and of these columns fit the inner cache
  for (std::int64_t k = 0; k < p.depth; k += step) {
    const std::int64_t here = std::min(step, p.depth - k);
    const float* a = packed;
    std::int64_t a_row = column_tile_rows;
    if constexpr (std::is_same_v<T, float>) {
      a = p.a + task.row + k * p.a_column, a_row = p.a_column;
    } else {
      table().pack_rows_wide(p.a + task.row + k * p.a_column, p.a_column, here, task.rows, task.rows, packed, a_row);
    }
    // Rows of the next step lie far apart, so that the processor does not look ahead to them by itself.
    const std::int64_t panels = (task.end_column - task.column + panel_columns - 1) / panel_columns;
    constexpr std::int64_t bytes = sizeof(T), line = 64;
    Lines ahead{.from = reinterpret_cast<const char*>(p.a + task.row + (k + here) * p.a_column),
                .stride = p.a_column * bytes,
                .in_row = task.rows * bytes / line + 1,
                .rows = std::min(step, p.depth - k - here),
                .share = 0};
    ahead.share = (ahead.in_row * ahead.rows + panels - 1) / panels;
    for (std::int64_t column = task.column; column < task.end_column; column += panel_columns) {
      const std::int64_t width = std::min(panel_columns, task.end_column - column);
      table().multiply_columns(task.rows, width, here, a, a_row, p.panel(column, k), p.b_row,
                               task.sums + column - task.column, task.sums_row, task.accumulate || k > 0, ahead);
      if (k + here == p.depth) store(p, task, column, width);
    }
  }
}

/// scratch: for the sums of a task, and its block of `a`.
template <class T, class P>
void multiply_tile(const Product<T, P>& p, const Tiles::Tile& tile, float* scratch) {
  const Task task{.row = tile.row,
                  .rows = tile.rows,
                  .column = tile.column,
                  .end_column = tile.column + tile.columns,
                  .sums = p.is_wide ? static_cast<float*>(p.c) + tile.row * p.c_row + tile.column : scratch,
                  .sums_row = p.is_wide ? p.c_row : tile_columns,
                  .accumulate = p.is_wide && p.accumulate};
  P* const packed = reinterpret_cast<P*>(scratch + p.sums_apart());
  if constexpr (std::is_same_v<P, float>) {
    p.reads_columns() ? multiply_columns(p, task, packed) : multiply_rows(p, task, packed);
  } else {
    multiply_rows(p, task, packed);
  }
}

template <class T, class P>
void multiply(const Product<T, P>& p) {
  const std::int64_t most_columns = p.is_wide ? round_up(p.columns, panel_columns) : tile_columns;
  const Tiles tiles(p.rows, p.columns, most_columns, p.task_rows(), p.reads_columns() ? 12 : 16);
  constexpr std::int64_t block = tile_rows * depth_step<T, P> * static_cast<std::int64_t>(sizeof(P)) / 4;
  at::parallel_for(0, tiles.count(), 1, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scratch = at::empty({p.sums_apart() + block}, at::kFloat);
    for (std::int64_t task = begin; task < end; ++task)
      multiply_tile(p, tiles.at(task), scratch.mutable_data_ptr<float>());
    at::native::cpublas::brgemm_release(sizeof(P) == 2);
  });
}

/// Whether the rows of a matrix are read as they are, by half panels.
bool is_in_order(const at::Tensor& matrix, PackedType type) {
  return matrix.scalar_type() == at::kFloat && matrix.stride(1) == 1 && matrix.size(1) % (panel_columns / 2) == 0 &&
         (type == PackedType::brief || matrix.stride(0) % slow_row_stride != 0);
}

}  // namespace

PackedMatrix pack_matrix(const at::Tensor& matrix, PackedType type) {
  if (type == PackedType::int8) return pack_matrix_int8(matrix);
  if (!has_micro_kernels()) return plain::pack_matrix(matrix, type);
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1), padded = round_up(rows, depth_unit);
  if (is_in_order(matrix, type)) return {matrix, rows, columns};
  const std::int64_t panels = (columns + panel_columns - 1) / panel_columns;
  const bool widens = matrix.scalar_type() == at::kBFloat16 && !multiplies_bf16();
  at::Tensor data = at::empty({panels, padded, panel_columns}, widens ? at::kFloat : matrix.scalar_type());
  const bool by_rows = matrix.stride(1) == 1 || columns == 1;
  ARGOSY_CHECK(by_rows || matrix.stride(0) == 1 || rows == 1, "a matrix with strides {} and {}", matrix.stride(0),
               matrix.stride(1));
  constexpr std::int64_t some = 512;  // rows in a task
  const std::int64_t parts = (padded + some - 1) / some;
  with_type(matrix, [&]<class T>(T*) {
    const T* const from = pointer<T>(matrix);
    void* const to = data.mutable_data_ptr();
    const std::int64_t row = matrix.stride(0), column = by_rows ? 1 : matrix.stride(1);
    at::parallel_for(0, panels * parts, grain(some * panel_columns / 4), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t first = task / parts * panel_columns, k = task % parts * some;
        const auto pack = [&](auto&& packs, auto* all) {
          packs(from + k * row + first * column, row, column, std::clamp<std::int64_t>(rows - k, 0, some),
                std::min(some, padded - k), std::min(panel_columns, columns - first),
                all + first * padded + k * panel_columns);
        };
        if constexpr (std::is_same_v<T, Bf16>) {
          if (widens) {
            pack(table().pack_panel_wide, static_cast<float*>(to));
            continue;
          }
        }
        pack(table().loops<T>().pack_panel, static_cast<T*>(to));
      }
    });
  });
  return {std::move(data), rows, columns};
}

void gemm(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
  if (b.scales.defined()) return gemm_int8(a, b, c, options);
  if (!has_micro_kernels()) return plain::gemm(a, b, c, options);
  ARGOSY_CHECK(c.size(1) <= 1 || c.stride(1) == 1, "the rows of a product are contiguous");
  if (c.numel() == 0) return;
  if (b.rows == 0) {
    if (!options.accumulate) c.zero_();
    if (options.bias) c.add_(*options.bias);
    return;
  }
  const bool by_rows = a.stride(1) == 1 || a.size(1) == 1;
  ARGOSY_CHECK(by_rows || a.stride(0) == 1 || a.size(0) == 1, "a matrix with strides {} and {}", a.stride(0),
               a.stride(1));
  with_type(a, [&]<class T>(T*) {
    with_type(b.data, [&]<class P>(P*) {
      if constexpr (std::is_same_v<T, P> || std::is_same_v<P, float>)
        multiply(Product<T, P>{.a = pointer<T>(a),
                               .rows = a.size(0),
                               .columns = b.columns,
                               .depth = b.rows,
                               .a_row = a.stride(0),
                               .a_column = by_rows ? 1 : a.stride(1),
                               .b = pointer<P>(b.data),
                               .b_panel = b.data.dim() == 3 ? b.data.stride(0) : panel_columns,
                               .b_row = b.data.dim() == 3 ? panel_columns : b.data.stride(0),
                               .c = c.mutable_data_ptr(),
                               .c_row = c.stride(0),
                               .is_wide = c.scalar_type() == at::kFloat,
                               .bias = pointer<T>(options.bias),
                               .accumulate = options.accumulate});
      else
        ARGOSY_CHECK(false, "a product of fp32 and bf16");
    });
  });
}

}  // namespace argosy::kernels::cpu

namespace argosy::kernels {

std::string cpu_instructions() {
  std::string text = cpu::table().name;
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (text != "baseline" && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1U) != 0)
    text += " bf16";
  if (text != "baseline" && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1U) != 0)
    text += " amx";
#endif
  return text;
}

}  // namespace argosy::kernels
