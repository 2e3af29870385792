#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.hpp"
#include "optim/optimizer.hpp"

namespace argosy::test {
namespace {

/// A matrix or vector as the paper updates it, in fp64, but for the factor of the decay, as in AdamW's test.
struct AdafactorReference {
  std::int64_t rows, columns;
  std::vector<double> x, row, column;
  void update(const std::vector<double>& g, const optim::AdafactorNumbers& numbers, double lr, int t, bool decays) {
    row.resize(static_cast<std::size_t>(rows));
    column.resize(static_cast<std::size_t>(columns));
    const double b = 1 - std::pow(t, -0.8);
    const auto at = [&](std::int64_t r, std::int64_t c) { return static_cast<std::size_t>(r * columns + c); };
    std::vector<double> row_mean(row.size()), column_mean(column.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const double square = g[at(r, c)] * g[at(r, c)] + 1e-30;
        row_mean[static_cast<std::size_t>(r)] += square / static_cast<double>(columns);
        column_mean[static_cast<std::size_t>(c)] += square / static_cast<double>(rows);
      }
    }
    double mean = 0, squares = 0, weights = 0;
    for (std::size_t r = 0; r < row.size(); ++r) {
      row[r] = b * row[r] + (1 - b) * row_mean[r];
      mean += row[r] / static_cast<double>(rows);
    }
    for (std::size_t c = 0; c < column.size(); ++c) column[c] = b * column[c] + (1 - b) * column_mean[c];
    std::vector<double> u(g.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const double v = row[static_cast<std::size_t>(r)] * column[static_cast<std::size_t>(c)] / mean;
        u[at(r, c)] = g[at(r, c)] / std::sqrt(v);
        squares += u[at(r, c)] * u[at(r, c)];
        weights += x[at(r, c)] * x[at(r, c)];
      }
    }
    const auto n = static_cast<double>(u.size());
    if (numbers.scales_by_weights) lr *= std::max(1e-3, std::sqrt(weights / n));
    const double clip = numbers.update_clip > 0 ? std::max(1.0, std::sqrt(squares / n) / numbers.update_clip) : 1;
    for (std::size_t i = 0; i < u.size(); ++i)
      x[i] = x[i] * (decays ? static_cast<float>(1 - lr * numbers.weight_decay) : 1) - lr * u[i] / clip;
  }
};

/// Fails if an element is further from the reference than `bound` times the change since the start.
void expect_the_formula(const optim::AdafactorNumbers& numbers, double lr) {
  const spec::Unit unit{
      .name = "unit",
      .parameters = {{{"weight", {37, 41}, true}, spec::Role::attention_out},
                     {{"bias", {300}, false}, spec::Role::linear_bias},
                     {{"stacked", {40, 24}, true}, spec::Role::ffn_in, {}, {{"gate", 20}, {"up", 20}}}}};
  const partition::FlatSpace space(unit.flat(), partition::Layout{});
  const optim::Statistics statistics =
      optim::statistics_of(unit, space, 0, optim::state_of({.type = optim::OptimizerType::adafactor}), at::kFloat);
  ASSERT_EQ(statistics.matrices.size(), 4U);
  optim::ShardState shard;
  shard.master = at::zeros({space.padded_size()}, at::kFloat);
  shard.gradient = at::zeros({space.padded_size()}, at::kFloat);
  const auto pieces = optim::pieces_of(space, 0, shard);
  const auto optimizer = optim::make_adafactor(numbers);
  std::vector<AdafactorReference> references;
  RandomStream random(7, 0);
  for (const auto& [begin, rows, columns] : statistics.matrices) {
    AdafactorReference& reference = references.emplace_back(AdafactorReference{rows, columns, {}, {}, {}});
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const auto value = static_cast<float>(0.1 * random.normal());
      reference.x.push_back(value);
      shard.master.data_ptr<float>()[begin + i] = value;
    }
  }
  const std::vector<AdafactorReference> first = references;
  for (int t = 1; t <= 100; ++t) {
    const double coefficient = t % 3 == 0 ? 0.25 : 1;
    for (std::size_t m = 0; m < references.size(); ++m) {
      const auto& [begin, rows, columns] = statistics.matrices[m];
      std::vector<double> gradient;
      // Of sizes that differ by row, and so that some updates are clipped.
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const auto g =
            static_cast<float>(random.normal() * (1 + static_cast<double>(i / columns % 5)) * (t % 10 == 0 ? 5 : 1));
        shard.gradient.data_ptr<float>()[begin + i] = g;
        gradient.push_back(g * coefficient);
      }
      references[m].update(gradient, numbers, lr, t, begin >= space.decay_begin());
    }
    optimizer->update(pieces, statistics,
                      {.lr = lr,
                       .number = t,
                       .coefficient = at::tensor({static_cast<float>(coefficient)}),
                       .sum = [](std::span<double> /*alone*/) {}});
  }
  for (std::size_t m = 0; m < references.size(); ++m) {
    double error = 0, change = 0;
    for (std::size_t i = 0; i < references[m].x.size(); ++i) {
      const double got = shard.master.data_ptr<float>()[statistics.matrices[m].begin + static_cast<std::int64_t>(i)];
      error += std::pow(got - references[m].x[i], 2);
      change += std::pow(first[m].x[i] - references[m].x[i], 2);
    }
    EXPECT_LT(std::sqrt(error / change), 1e-5) << m;
  }
  const at::Tensor before = shard.master.clone();
  optimizer->update(pieces, statistics, {.lr = lr, .number = 101, .coefficient = at::tensor({-1.0F})});
  EXPECT_TRUE(shard.master.equal(before)) << "skipped";
}

TEST(Adafactor, EqualsTheFormulaOverAHundredSteps) {
  expect_the_formula({}, 1e-3);
  expect_the_formula({.weight_decay = 0.1}, 1e-3);
  expect_the_formula({.update_clip = 0}, 1e-3);
  expect_the_formula({.update_clip = 0.5}, 1e-3);
  expect_the_formula({.weight_decay = 0.1, .scales_by_weights = true}, 1e-2);
}

}  // namespace
}  // namespace argosy::test
