// Products of integers of 8 bits by the micro-kernels of oneDNN: unsigned by signed, summed in 32 bits. The rows of the
// left operand are shifted by 128 to be unsigned, which the sums of the columns undo.
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "kernels/cpu/access.hpp"
#include "kernels/cpu/tiles.hpp"
#include "kernels/device_table.hpp"

namespace argosy::kernels::cpu {
namespace {

constexpr std::int64_t together = 4;        // rows of a panel whose elements stand next to each other
constexpr std::int64_t depth_quantum = 64;  // panels are padded to a multiple of this

void micro_kernel(std::int64_t rows, std::int64_t columns, std::int64_t depth, std::uint8_t* a, std::int8_t* panel,
                  std::int32_t* c, std::int64_t c_stride) {
  at::native::cpublas::brgemm(rows, columns, depth, depth, panel_columns, c_stride, false, a,
                              reinterpret_cast<signed char*>(panel), c, true);
}

bool has_micro_kernel() {
  static const bool yes = [] {
    if (&table() == table_named("baseline")) return false;
    try {
      std::uint8_t a[depth_quantum] = {};
      std::int8_t b[depth_quantum * panel_columns] = {};
      std::int32_t c[panel_columns] = {};
      micro_kernel(1, panel_columns, depth_quantum, a, b, c, panel_columns);
      return true;
    } catch (const std::exception&) {  // LibTorch's, or oneDNN's
      return false;
    }
  }();
  return yes;
}

}  // namespace

PackedMatrix pack_matrix_int8(const at::Tensor& matrix) {
  PackedMatrix packed = plain::pack_matrix(matrix, PackedType::int8);
  if (!has_micro_kernel()) return packed;
  const std::int64_t rows = packed.rows, columns = packed.columns, padded = round_up(rows, depth_quantum);
  const std::int64_t panels = (columns + panel_columns - 1) / panel_columns;
  const at::Tensor from = packed.data.contiguous();
  packed.data = at::zeros({panels, padded / together, panel_columns, together}, at::kChar);
  const auto* const integers = from.const_data_ptr<std::int8_t>();
  auto* const data = packed.data.mutable_data_ptr<std::int8_t>();
  for (std::int64_t k = 0; k < rows; ++k) {
    for (std::int64_t j = 0; j < columns; ++j) {
      data[j / panel_columns * padded * panel_columns + (k / together * panel_columns + j % panel_columns) * together +
           k % together] = integers[k * columns + j];
    }
  }
  return packed;
}

void gemm_int8(const at::Tensor& a, const PackedMatrix& b, const at::Tensor& c, const GemmOptions& options) {
  if (b.data.dim() == 2) return plain::gemm(a, b, c, options);
  const std::int64_t rows = a.size(0), columns = b.columns, padded = round_up(b.rows, depth_quantum);
  ARGOSY_CHECK(c.size(1) <= 1 || c.stride(1) == 1, "the rows of a product are contiguous");
  if (c.numel() == 0) return;
  const at::Tensor left = a.contiguous(), integers = at::empty({rows, padded}, at::kByte),
                   row_scales = at::empty({rows}, at::kFloat);
  auto* const integer = integers.mutable_data_ptr<std::uint8_t>();
  auto* const panels = b.data.mutable_data_ptr<std::int8_t>();
  auto* const row_scale = pointer<float>(row_scales);
  const auto* const scale = pointer<float>(b.scales);
  const auto* const sum = b.sums.const_data_ptr<std::int32_t>();
  with_type(a, [&]<class T>(T*) {
    const T *const from = pointer<T>(left), *const bias = pointer<T>(options.bias);
    at::parallel_for(0, rows, grain(b.rows), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        row_scale[row] = table().loops<T>().round_row(from + row * b.rows, b.rows, integer + row * padded, padded);
    });
    const Tiles tiles(rows, columns, tile_columns);
    at::parallel_for(0, tiles.count(), 1, [&](std::int64_t begin, std::int64_t end) {
      const at::Tensor scratch = at::empty({tile_rows * tile_columns}, at::kInt),
                       wide = at::empty({tile_rows * tile_columns}, at::kFloat);
      auto* const sums = scratch.mutable_data_ptr<std::int32_t>();
      float* const tile = pointer<float>(wide);
      for (std::int64_t task = begin; task < end; ++task) {
        const auto [first_row, count, first_column, across] = tiles.at(task);
        for (std::int64_t column = 0; column < across; column += panel_columns) {
          for (std::int64_t row = 0, some = 0; row < count; row += some) {
            some = next_rows(count - row);
            micro_kernel(some, std::min(panel_columns, across - column), padded, integer + (first_row + row) * padded,
                         panels + (first_column + column) * padded, sums + row * tile_columns + column, tile_columns);
          }
        }
        table().scale_tile(sums, tile, tile_columns, count, across, row_scale + first_row, scale + first_column,
                           sum + first_column);
        const std::int64_t at = first_row * c.stride(0) + first_column;
        const T* const shift = bias != nullptr ? bias + first_column : nullptr;
        if (c.scalar_type() == a.scalar_type()) {
          table().loops<T>().store_tile(tile, tile_columns, pointer<T>(c) + at, c.stride(0), count, across, shift,
                                        options.accumulate);
        } else {
          ARGOSY_CHECK(shift == nullptr, "an int8 product in fp32 of bf16 rows has no bias");
          table().fp32.store_tile(tile, tile_columns, pointer<float>(c) + at, c.stride(0), count, across, nullptr,
                                  options.accumulate);
        }
      }
      at::native::cpublas::brgemm_release(true);
    });
  });
}

}  // namespace argosy::kernels::cpu
