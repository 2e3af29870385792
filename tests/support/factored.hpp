#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"

namespace argosy::test {

/// Adafactor's second moments (arXiv:1804.04235) without momentum and update clipping: of each matrix, a running mean
/// of the squared gradient over each row and each column. It shows that an optimizer may keep state that is not by
/// element.
class Factored final : public optim::Optimizer {
 public:
  Factored() : Optimizer(0) {}
  static std::vector<spec::StateTensor> state(const spec::Unit& /*all alike*/) {
    return {{std::string(spec::weights_tensor)},
            {.name = "row_mean", .extent = spec::Extent::row},
            {.name = "column_mean", .extent = spec::Extent::column}};
  }

 private:
  using Statistics = optim::Statistics;
  static constexpr double epsilon = 1e-12;  // above squares of rounding errors, all that the biases of keys have

  void update_weights(std::span<const optim::Piece> pieces, const Statistics& statistics,
                      const optim::Update& update) const override {
    const auto coefficient = update.coefficient.item<double>();
    if (coefficient < 0) return;
    const double decay = 1 - std::pow(static_cast<double>(update.number), -0.8);
    const Statistics::Tensor &rows = statistics.tensors[0], &columns = statistics.tensors[1];
    // The new means of all ranks' slices are the old ones and every rank's terms, so one sum makes them.
    std::vector<double> means(static_cast<std::size_t>(rows.space.padded_size() + columns.space.padded_size()));
    const auto row_mean = [&](std::size_t m, std::int64_t row) -> double& {
      return means[static_cast<std::size_t>(rows.space.offset(m) + row)];
    };
    const auto column_mean = [&](std::size_t m, std::int64_t column) -> double& {
      return means[static_cast<std::size_t>(rows.space.padded_size() + columns.space.offset(m) + column)];
    };
    const auto for_owned = [&](auto use) {
      std::int64_t before = 0;
      for (const Statistics::Tensor* const tensor : {&rows, &columns}) {
        auto* local = tensor->shard.data_ptr<float>();
        for (const int slice : tensor->space.owned_slices(statistics.canonical_rank))
          for (std::int64_t i = 0; i < tensor->space.slice_size(); ++i)
            use(*local++, means[static_cast<std::size_t>(before + tensor->space.slice_begin(slice) + i)]);
        before = rows.space.padded_size();
      }
    };
    for_owned([&](float old, double& mean) { mean = decay * old; });
    for_elements(pieces, statistics,
                 [&](const optim::Piece& piece, std::int64_t i, std::size_t m, std::int64_t row, std::int64_t column) {
                   const double g = piece.gradient.const_data_ptr<float>()[i] * coefficient,
                                square = (1 - decay) * g * g;
                   row_mean(m, row) += square / static_cast<double>(statistics.matrices[m].columns);
                   column_mean(m, column) += square / static_cast<double>(statistics.matrices[m].rows);
                 });
    update.sum(means);
    for_owned([](float& kept, double mean) { kept = static_cast<float>(mean); });

    std::vector<double> whole(statistics.matrices.size());  // the mean of a matrix
    for (std::size_t m = 0; m < whole.size(); ++m) {
      const std::int64_t count = statistics.matrices[m].rows;
      for (std::int64_t row = 0; row < count; ++row) whole[m] += row_mean(m, row) / static_cast<double>(count);
    }
    for_elements(pieces, statistics,
                 [&](const optim::Piece& piece, std::int64_t i, std::size_t m, std::int64_t row, std::int64_t column) {
                   const double second = whole[m] > 0 ? row_mean(m, row) * column_mean(m, column) / whole[m] : 0;
                   const double g = piece.gradient.const_data_ptr<float>()[i] * coefficient;
                   piece.master.data_ptr<float>()[i] -= static_cast<float>(update.lr * g / std::sqrt(second + epsilon));
                 });
    for (const optim::Piece& piece : pieces)
      if (piece.weights) piece.weights->copy_(piece.master);
  }

  template <class F>
  static void for_elements(std::span<const optim::Piece> pieces, const Statistics& statistics, F use) {
    for (const optim::Piece& piece : pieces) {
      for (std::size_t m = 0; m < statistics.matrices.size(); ++m) {
        const auto& [begin, rows, columns] = statistics.matrices[m];
        const std::int64_t from = std::max(begin, piece.begin),
                           to = std::min(begin + rows * columns, piece.begin + piece.master.numel());
        for (std::int64_t at = from; at < to; ++at)
          use(piece, at - piece.begin, m, (at - begin) / columns, (at - begin) % columns);
      }
    }
  }
};

}  // namespace argosy::test
