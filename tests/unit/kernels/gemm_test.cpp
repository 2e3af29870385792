#include "kernels/gemm.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include "kernels/cpu/table.hpp"
#include "kernels/cpu/tiles.hpp"
#include "unit/kernels/compare.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

struct Shape {
  std::int64_t m, k, n;
};

/// [rows, columns] as it is, or as the transpose of a matrix.
at::Tensor matrix(std::int64_t rows, std::int64_t columns, bool transposed, at::ScalarType type, double phase) {
  return transposed ? values({columns, rows}, type, phase).t() : values({rows, columns}, type, phase);
}

class Gemm : public testing::TestWithParam<std::tuple<at::ScalarType, Shape, bool, bool>> {};

TEST_P(Gemm, EqualsPlain) {
  const auto [type, shape, transposed_a, transposed_b] = GetParam();
  const auto [m, k, n] = shape;
  const at::Tensor a = matrix(m, k, transposed_a, type, 1), b = matrix(k, n, transposed_b, type, 2),
                   bias = values({n}, type, 3);
  const PackedMatrix packed = pack_matrix(b), reference = plain::pack_matrix(b, PackedType::same);
  for (const at::ScalarType out : {at::kFloat, type}) {
    for (const bool accumulate : {false, true}) {
      for (const bool with_bias : {false, true}) {
        const GemmOptions options{accumulate, with_bias ? OptionalTensor(bias) : std::nullopt};
        const at::Tensor got = accumulate ? values({m, n}, out, 4) : poisoned({m, n}).to(out),
                         expected = accumulate ? values({m, n}, out, 4) : poisoned({m, n}).to(out);
        gemm(a, packed, got, options);
        plain::gemm(a, reference, expected, options);
        if (got.numel() == 0) continue;
        EXPECT_LT(distance(got, expected), tolerance(out)) << accumulate << with_bias;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Gemm,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(Shape{1, 1, 1}, Shape{3, 7, 5}, Shape{130, 33, 65},
                                                          Shape{129, 2082, 300}, Shape{500, 130, 90},
                                                          Shape{64, 1061, 64}, Shape{5, 64, 8}, Shape{0, 8, 4},
                                                          Shape{4, 8, 0}, Shape{4, 0, 8}),
                                          testing::Bool(), testing::Bool()));

class GemmInt8 : public testing::TestWithParam<std::tuple<at::ScalarType, Shape, bool>> {};

TEST_P(GemmInt8, EqualsPlainAndIsNearTheProduct) {
  const auto [type, shape, transposed] = GetParam();
  const auto [m, k, n] = shape;
  const at::Tensor a = values({m, k}, type, 1) * 3, b = matrix(k, n, transposed, type, 2), bias = values({n}, type, 3);
  const PackedMatrix packed = pack_matrix(b, PackedType::int8), reference = plain::pack_matrix(b, PackedType::int8);
  for (const bool accumulate : {false, true}) {
    for (const bool with_bias : {false, true}) {
      const GemmOptions options{accumulate, with_bias ? OptionalTensor(bias) : std::nullopt};
      const at::Tensor got = values({m, n}, type, 4), expected = got.clone(), exact = got.clone();
      gemm(a, packed, got, options);
      plain::gemm(a, reference, expected, options);
      plain::gemm(a, plain::pack_matrix(b, PackedType::same), exact, options);
      if (got.numel() == 0) continue;
      EXPECT_LT(distance(got, expected), tolerance(type, 1e-6)) << accumulate << with_bias;
      EXPECT_LT(distance(got, exact), 0.02);
      EXPECT_TRUE(k < 7 || distance(got, exact) > 1e-4);  // rounded, so not the same
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmInt8,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(Shape{1, 1, 1}, Shape{3, 7, 5}, Shape{130, 33, 65},
                                                          Shape{129, 2082, 300}, Shape{0, 8, 4}, Shape{4, 8, 0}),
                                          testing::Bool()));

TEST(GemmInt8, ZerosAndStrangeNumbersStayInTheirRows) {
  const at::Tensor a = values({5, 40}), b = values({40, 70});
  a[0].zero_();
  a[1][7] = std::numeric_limits<float>::quiet_NaN();
  a[2][7] = std::numeric_limits<float>::infinity();
  a[3].mul_(1e-40F);  // 127 divided by these is infinite
  b.select(1, 3).zero_();
  const at::Tensor c = poisoned({5, 70});
  gemm(a, pack_matrix(b, PackedType::int8), c);
  EXPECT_TRUE(c[0].eq(0).all().item<bool>());
  EXPECT_TRUE(c[1].isnan().all().item<bool>());
  EXPECT_TRUE(c[2].isnan().all().item<bool>());
  EXPECT_TRUE(c[3].eq(0).all().item<bool>());
  EXPECT_LT(distance(c[4], at::mm(a.narrow(0, 4, 1), b)[0]), 0.02);
  EXPECT_EQ(c[4][3].item<double>(), 0);
}

/// A slice of a wider matrix, as the projections of packed queries, keys and values are.
TEST(Gemm, ReadsAndWritesSlices) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = values({20, 96}, type).narrow(1, 32, 48), b = values({48, 90}, type, 2);
    const at::Tensor whole = values({20, 200}, type, 3), before = whole.clone(), part = whole.narrow(1, 70, 90);
    gemm(a, b, part);
    EXPECT_LT(distance(part, at::mm(a.to(at::kFloat), b.to(at::kFloat))), tolerance(type));
    EXPECT_TRUE(whole.narrow(1, 0, 70).equal(before.narrow(1, 0, 70)));
    EXPECT_TRUE(whole.narrow(1, 160, 40).equal(before.narrow(1, 160, 40)));
  }
}

/// What is decoded or trained must not depend on the other rows of a batch, nor on threads.
TEST(Gemm, BitsOfARowDependOnNoOtherRowAndNoThreads) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = values({301, 1100}, type), b = values({1100, 333}, type, 2);
    const PackedMatrix packed = pack_matrix(b);
    if (packed.data.dim() != 3) continue;  // without AVX2: the library's own product, which promises less
    const at::Tensor whole = gemm(a, packed);
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {17, 1}, {100, 77}, {288, 13}})
      EXPECT_TRUE(gemm(a.narrow(0, first, count), packed).equal(whole.narrow(0, first, count))) << first;
    const at::Tensor gradient = at::empty({1100, 333}, at::kFloat), alone = at::empty({1100, 333}, at::kFloat);
    const int threads = at::get_num_threads();
    at::set_num_threads(3);
    EXPECT_TRUE(gemm(a, b).equal(whole));
    gemm(a.t(), whole, gradient);
    at::set_num_threads(1);
    EXPECT_TRUE(gemm(a, b).equal(whole));
    gemm(a.t(), whole, alone);
    at::set_num_threads(threads);
    EXPECT_TRUE(gradient.equal(alone));
  }
}

/// Rows in their own order give the bits of packed ones.
TEST(Gemm, ReadsRowsInPlaceWhereACopyDoesNotPay) {
  struct Case {
    std::int64_t columns, stride;
    bool copied, copied_for_few_columns;
  };
  for (const Case& one : {Case{288, 288, false, false}, Case{32, 100, false, false}, Case{160, 1024, true, false},
                          Case{512, 512, true, false}, Case{300, 300, true, true}}) {
    SCOPED_TRACE(fmt::format("{} of {} columns", one.columns, one.stride));
    const at::Tensor b = values({130, one.stride}, at::kFloat, 2).narrow(1, one.stride - one.columns, one.columns);
    const PackedMatrix transposed = pack_matrix(b.t().contiguous().t());
    if (transposed.data.dim() != 3) continue;  // without AVX2
    const at::Tensor rows = values({40, 130}, at::kFloat), columns = values({130, 40}, at::kFloat, 3).t();
    const at::Tensor many = values({130, 600}, at::kFloat, 4).t();
    EXPECT_EQ(pack_matrix(b).data.is_alias_of(b), !one.copied);
    EXPECT_EQ(pack_matrix(b, PackedType::brief).data.is_alias_of(b), !one.copied_for_few_columns);
    for (const at::Tensor& a : {rows, columns, many}) EXPECT_TRUE(gemm(a, b).equal(gemm(a, transposed)));
    EXPECT_TRUE(gemm(columns, pack_matrix(b, PackedType::brief)).equal(gemm(columns, transposed)));
  }
}

/// Of every table that this processor runs, whichever one it takes for products.
std::vector<const cpu::Table*> all_tables() {
  std::vector<const cpu::Table*> tables;
  for (const char* name : {"baseline", "avx2", "avx512", "avx512_bf16", "avx512_amx"})
    if (const cpu::Table* const table = cpu::table_named(name)) tables.push_back(table);
  return tables;
}

TEST(Packing, AsFp32WritesTheNumbersAndZerosBehindThem) {
  constexpr std::int64_t rows = 150, columns = 61, padded = 160, panel = cpu::panel_columns;
  for (const cpu::Table* const table : all_tables()) {
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", table->name, transposed));
      const at::Tensor m = matrix(rows, columns, transposed, at::kBFloat16, 1), wide = m.to(at::kFloat);
      const auto* const from = static_cast<const cpu::Bf16*>(m.const_data_ptr());
      const at::Tensor panels = poisoned({padded, panel}), packed = poisoned({rows, panel});
      table->pack_panel_wide(from, m.stride(0), m.stride(1), rows, padded, columns, panels.mutable_data_ptr<float>());
      EXPECT_TRUE(panels.narrow(0, 0, rows).narrow(1, 0, columns).equal(wide));
      EXPECT_TRUE(panels.narrow(0, rows, padded - rows).eq(0).all().item<bool>());
      if (transposed) continue;
      table->pack_rows_wide(from, m.stride(0), rows, columns, 64, packed.mutable_data_ptr<float>(), panel);
      EXPECT_TRUE(packed.narrow(1, 0, columns).equal(wide));
      EXPECT_TRUE(packed.narrow(1, columns, 64 - columns).eq(0).all().item<bool>());
    }
  }
}

TEST(Products, TilesAreAllOfTheResultAndAsManyForEachThread) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3, 8}) {
    at::set_num_threads(threads);
    for (const std::int64_t rows : {1, 40, 500, 864, 2000}) {
      for (const std::int64_t columns : {1, 288, 4000}) {
        for (const bool tall : {false, true}) {
          const cpu::Tiles tiles = tall ? cpu::Tiles(rows, columns, columns, 240, 12) : cpu::Tiles(rows, columns, 256);
          SCOPED_TRACE(fmt::format("{} threads, {} x {}, {}", threads, rows, columns, tall));
          const at::Tensor times = at::zeros({rows, columns}, at::kInt);
          for (std::int64_t task = 0; task < tiles.count(); ++task) {
            const auto [row, height, column, width] = tiles.at(task);
            EXPECT_LE(height, tall ? 240 : cpu::tile_rows);
            times.narrow(0, row, height).narrow(1, column, width).add_(1);
          }
          EXPECT_TRUE(times.eq(1).all().item<bool>());
          if (rows >= 864 && threads <= 2) {
            EXPECT_EQ(tiles.count() % threads, 0);
          }
          if (columns == 4000) {
            EXPECT_GE(tiles.count(), threads);
          }
        }
      }
    }
  }
  at::set_num_threads(before);
}

TEST(Products, OfColumnsAreTheSumsOfThePanelAndNothingElse) {
  constexpr std::int64_t depth = 37, rows = 27, panel = cpu::panel_columns;
  for (const cpu::Table* const table : all_tables()) {
    for (const auto& [columns, accumulate] : std::vector<std::pair<std::int64_t, bool>>{
             {5, false}, {5, true}, {29, true}, {32, false}, {32, true}, {61, false}, {61, true}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", table->name, columns, accumulate));
      const at::Tensor a = values({depth, rows + 5}, at::kFloat, 1), b = values({depth, panel}, at::kFloat, 2);
      b.narrow(1, columns, panel - columns).fill_(std::numeric_limits<float>::quiet_NaN());  // as memory may hold
      const at::Tensor c = values({rows, columns + 3}, at::kFloat, 3), before = c.clone();
      cpu::Lines ahead{.from = static_cast<const char*>(a.const_data_ptr()),
                       .stride = 4 * (rows + 5),
                       .in_row = 2,
                       .rows = 20,
                       .share = 30};
      table->multiply_columns(rows, columns, depth, a.const_data_ptr<float>(), a.stride(0), b.const_data_ptr<float>(),
                              panel, c.mutable_data_ptr<float>(), c.stride(0), accumulate, ahead);
      EXPECT_GE(2 * ahead.row + ahead.line, 30) << "all are fetched that should be";
      const at::Tensor product = at::mm(a.narrow(1, 0, rows).t(), b.narrow(1, 0, columns));
      EXPECT_LT(distance(c.narrow(1, 0, columns), accumulate ? before.narrow(1, 0, columns) + product : product),
                tolerance(at::kFloat));
      EXPECT_TRUE(c.narrow(1, columns, 3).equal(before.narrow(1, columns, 3)));
    }
  }
}

TEST(Gemm, NanAndInfinityReachWhatTheyShouldAndNothingElse) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = values({40, 35}, type), b = values({35, 70}, type, 2);
    a[7][34] = std::numeric_limits<float>::quiet_NaN();
    b[3][66] = std::numeric_limits<float>::infinity();
    const at::Tensor c = gemm(a, b).to(at::kFloat);
    EXPECT_TRUE(c[7].isnan().all().item<bool>());
    const at::Tensor finite = c.isfinite();
    EXPECT_EQ(finite.logical_not().sum().item<std::int64_t>(), 70 + 39);
    const at::Tensor turned = at::empty({70, 40}, at::kFloat);
    gemm(b.t(), a.t(), turned);
    EXPECT_TRUE(turned.t().isfinite().equal(finite));
  }
}

}  // namespace
}  // namespace argosy::test
