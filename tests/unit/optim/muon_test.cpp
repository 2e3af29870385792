#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_svdvals.h>
#include <gtest/gtest.h>

#include "core/random.hpp"
#include "optim/optimizer.hpp"

namespace argosy::test {
namespace {

at::Tensor normal_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t stream) {
  RandomStream random(11, stream);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (float& value : values) value = static_cast<float>(random.normal());
  return at::from_blob(values.data(), {rows, columns}, at::kFloat).clone();
}

/// What Muon makes of a matrix.
at::Tensor transformed(const at::Tensor& matrix, at::ScalarType type) {
  const auto muon = optim::make_muon({}, 0.95);
  at::Tensor values = matrix.clone();
  muon->transform({&values, 1}, type);
  return values;
}

/// The formula in fp64.
at::Tensor exact(const at::Tensor& matrix) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  const at::Tensor wide = matrix.to(at::kDouble);
  at::Tensor x = (is_tall ? wide.t() : wide) / wide.norm();
  for (int step = 0; step < 5; ++step) {
    const at::Tensor square = x.matmul(x.t());
    x = x * 3.4445 + (square * -4.775 + square.matmul(square) * 2.0315).matmul(x);
  }
  const auto larger = static_cast<double>(std::max(matrix.size(0), matrix.size(1)));
  return (is_tall ? x.t() : x) * (0.2 * std::sqrt(larger));
}

double distance(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

/// Of a matrix whose singular values are alike: the iteration then multiplies an error by no more than it multiplies
/// the matrix. Each iteration rounds three matrices to bf16, by at most half a unit in the last place, and the last one
/// of fp32 products is not seen.
constexpr double bf16_products_bound = (5 * 3 + 1) * 0x1p-8;

TEST(Muon, InBf16IsTheFormulaWithinTheRoundingOfItsFactors) {
  for (const auto& [rows, columns] : {std::pair{48, 96}, {96, 48}, {64, 64}, {1, 40}, {33, 7}, {130, 257}}) {
    const at::Tensor matrix = normal_matrix(rows, columns, 1), expected = exact(matrix);
    const at::Tensor bf16 = transformed(matrix, at::kBFloat16), fp32 = transformed(matrix, at::kFloat);
    EXPECT_LT(distance(bf16, expected), bf16_products_bound) << rows << " x " << columns;
    EXPECT_LT(distance(fp32, expected), 1e-4) << rows << " x " << columns;
    EXPECT_GT(distance(bf16, fp32), 1e-3) << "the factors are fp32";
    EXPECT_TRUE(bf16.equal(transformed(matrix, at::kBFloat16))) << "another time, other bits";
  }
}

/// There, errors grow as a gradient's small directions do. What comes of them is a step of no more than usual size.
TEST(Muon, InBf16LeavesNoStepOfAGradientOfOneDirectionTooLarge) {
  const at::Tensor one = normal_matrix(96, 1, 1).matmul(normal_matrix(1, 64, 2));
  const at::Tensor step = transformed(one, at::kBFloat16) / (0.2 * std::sqrt(96.0));
  EXPECT_LT(at::linalg_svdvals(step).max().item<double>(), 1.3);
  const double along = (step * one).sum().item<double>() / one.norm().item<double>();
  EXPECT_GT(along, 0.6) << "the singular value of its direction";
  EXPECT_LT(along, 1.3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    EXPECT_EQ(transformed(one * 0, type).abs().max().item<double>(), 0);
    EXPECT_TRUE(transformed(one * 1e-30, type).isfinite().all().item<bool>());
    EXPECT_TRUE(transformed(one * 1e15, type).isfinite().all().item<bool>());
  }
}

/// Fewer threads than matrices take a matrix each, more a part of each matrix.
TEST(Muon, InBf16HasTheSameBitsWithAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const auto with_threads = [](int threads) {
    at::set_num_threads(threads);
    std::vector<at::Tensor> matrices;
    for (const std::int64_t rows : {48, 100, 64, 130, 1}) matrices.push_back(normal_matrix(rows, 90, 3));
    optim::make_muon({}, 0.95)->transform(matrices, at::kBFloat16);
    return matrices;
  };
  const std::vector<at::Tensor> alone = with_threads(1);
  for (const int threads : {2, 3, 5, 8}) {
    const std::vector<at::Tensor> together = with_threads(threads);
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(together[i].equal(alone[i])) << threads << ", " << i;
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace argosy::test
