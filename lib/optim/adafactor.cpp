#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "optim/optimizer.hpp"

namespace argosy::optim {
namespace {

/// A rectangle of a matrix, or a part of one row, whose elements lie together.
struct Block {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  std::int64_t at = 0;  // in the piece
};

/// Whole rows together, as many as have few elements; else what there is of a row.
template <class F>
void for_blocks(const MatrixPart& part, std::int64_t columns, F use) {
  constexpr std::int64_t most = 1 << 20;  // elements, since a sum widens them all to fp64
  for (std::int64_t done = 0; done < part.size;) {
    const std::int64_t row = (part.begin + done) / columns, column = (part.begin + done) % columns,
                       left = part.size - done;
    const bool whole = column == 0 && left >= columns;
    const std::int64_t rows = whole ? std::min(left / columns, std::max<std::int64_t>(1, most / columns)) : 1,
                       width = whole ? columns : std::min(left, columns - column);
    use(Block{row, column, rows, width, part.at + done});
    done += rows * width;
  }
}

at::Tensor values_of(const at::Tensor& flat, const Block& block) {
  return flat.narrow(0, block.at, block.rows * block.columns).view({block.rows, block.columns});
}

/// Second moments by row and column instead of by element (arXiv:1804.04235), without a first moment. With
/// b = 1 - t^-0.8 and means of gradient² + 10^-30 over a row or column: R = b·R + (1-b)·mean, C likewise,
/// U = gradient/√(R·Cᵀ/mean(R)), scaled down to the root mean square `update_clip`. The gradients become U.
/// Of a vector, R is the second moment of each element. Sums of means and squares are in fp64.
class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const AdafactorNumbers& numbers) : Optimizer(numbers.ema), numbers_(numbers) {}

 private:
  void update_weights(std::span<const Piece> pieces, const Statistics& statistics,
                      const Update& update) const override {
    const auto coefficient = update.coefficient.item<double>();
    if (coefficient < 0) return;
    ARGOSY_CHECK(statistics.tensors.size() == 2, "{} statistics for Adafactor", statistics.tensors.size());
    const std::vector<MatrixPart> parts = matrix_parts(pieces, statistics);
    for (const Piece& piece : pieces) piece.gradient.mul_(coefficient);
    const Means means = new_means(parts, statistics, update, statistics.tensors[0].shard.options());
    std::vector<double> rates(statistics.matrices.size(), update.lr);
    if (numbers_.scales_by_weights) {
      for (std::size_t m = 0; m < rates.size(); ++m)
        rates[m] *= std::max(1e-3, std::sqrt(means.weight_squares[m] / elements(statistics.matrices[m])));
    }
    const std::vector<double> squares = make_updates(parts, statistics, means, update);
    std::vector<double> steps = rates;
    for (std::size_t m = 0; m < steps.size() && numbers_.update_clip > 0; ++m)
      steps[m] /= std::max(1.0, std::sqrt(squares[m] / elements(statistics.matrices[m])) / numbers_.update_clip);
    for (auto part = parts.begin(); const Piece& piece : pieces) {
      const at::Tensor values = piece.master.to(at::kFloat);  // the master itself if it is fp32
      for (; part != parts.end() && part->piece == &piece; ++part) {
        const at::Tensor own = values.narrow(0, part->at, part->size);
        if (piece.decays) own.mul_(1 - rates[part->matrix] * numbers_.weight_decay);
        own.sub_(piece.gradient.narrow(0, part->at, part->size), steps[part->matrix]);
      }
      store_weights(piece, values, update.number);
    }
  }

  static double elements(const Statistics::Matrix& matrix) { return static_cast<double>(matrix.rows * matrix.columns); }

  struct Means {
    at::Tensor rows, columns;            // [padded size of their spaces] fp64, on the device
    std::vector<double> weight_squares;  // by matrix, summed; empty unless steps are scaled by weights
  };

  /// The new means, whole on every rank. A rank keeps those of its slices.
  [[nodiscard]] Means new_means(const std::vector<MatrixPart>& parts, const Statistics& statistics,
                                const Update& update, at::TensorOptions options) const {
    const double keeps = 1 - std::pow(static_cast<double>(update.number), -0.8);
    const auto &row_space = statistics.tensors[0].space, &column_space = statistics.tensors[1].space;
    const std::int64_t row_size = row_space.padded_size(), size = row_size + column_space.padded_size();
    const auto matrices = static_cast<std::int64_t>(statistics.matrices.size());
    const at::Tensor sums = at::zeros({size + matrices}, options.dtype(at::kDouble));
    for (const MatrixPart& part : parts) {
      const Statistics::Matrix& matrix = statistics.matrices[part.matrix];
      for_blocks(part, matrix.columns, [&](const Block& block) {
        const at::Tensor squares =
            values_of(part.piece->gradient, block).to(at::kDouble).square_().add_(1e-30).mul_(1 - keeps);
        sums.narrow(0, row_space.offset(part.matrix) + block.row, block.rows)
            .add_(squares.sum(1), 1.0 / static_cast<double>(matrix.columns));
        sums.narrow(0, row_size + column_space.offset(part.matrix) + block.column, block.columns)
            .add_(squares.sum(0), 1.0 / static_cast<double>(matrix.rows));
        if (numbers_.scales_by_weights)
          sums[size + static_cast<std::int64_t>(part.matrix)].add_(
              values_of(part.piece->master, block).to(at::kDouble).square_().sum());
      });
    }
    const auto for_slices = [&](auto use) {
      for (const auto& [begin, tensor] :
           {std::pair{std::int64_t{0}, &statistics.tensors[0]}, {row_size, &statistics.tensors[1]}}) {
        for (std::int64_t local = 0; const int slice : tensor->space.owned_slices(statistics.canonical_rank)) {
          const std::int64_t length = tensor->space.slice_size();
          use(tensor->shard.narrow(0, local, length), sums.narrow(0, begin + tensor->space.slice_begin(slice), length));
          local += length;
        }
      }
    };
    for_slices([&](const at::Tensor& kept, const at::Tensor& sum) { sum.add_(kept, keeps); });
    const std::vector<double> all = summed(sums, update);
    for_slices([](const at::Tensor& kept, const at::Tensor& sum) { kept.copy_(sum); });
    return {.rows = sums.narrow(0, 0, row_size),
            .columns = sums.narrow(0, row_size, size - row_size),
            .weight_squares = {all.begin() + size, all.end()}};
  }

  /// Adds up over the ranks, in place.
  static std::vector<double> summed(const at::Tensor& sums, const Update& update) {
    std::vector<double> all(static_cast<std::size_t>(sums.numel()));
    const at::Tensor host = at::from_blob(all.data(), {sums.numel()}, at::kDouble);
    host.copy_(sums);
    update.sum(all);
    sums.copy_(host);
    return all;
  }

  /// Gradients become updates. Returns the sum of their squares, by matrix.
  static std::vector<double> make_updates(const std::vector<MatrixPart>& parts, const Statistics& statistics,
                                          const Means& means, const Update& update) {
    const auto matrices = static_cast<std::int64_t>(statistics.matrices.size());
    const at::Tensor squares = at::zeros({matrices}, means.rows.options());
    for (const MatrixPart& part : parts) {
      const Statistics::Matrix& matrix = statistics.matrices[part.matrix];
      const auto m = static_cast<std::int64_t>(part.matrix);
      const at::Tensor row = means.rows.narrow(0, statistics.tensors[0].space.offset(part.matrix), matrix.rows),
                       column =
                           means.columns.narrow(0, statistics.tensors[1].space.offset(part.matrix), matrix.columns);
      const bool is_vector = matrix.columns == 1;
      const at::Tensor by_row = (is_vector ? row : row / row.mean()).rsqrt().to(at::kFloat),
                       by_column = column.rsqrt().to(at::kFloat);
      for_blocks(part, matrix.columns, [&](const Block& block) {
        const at::Tensor values = values_of(part.piece->gradient, block);
        values.mul_(by_row.narrow(0, block.row, block.rows).unsqueeze(1));
        if (!is_vector) values.mul_(by_column.narrow(0, block.column, block.columns));
        squares[m].add_(values.to(at::kDouble).square_().sum());
      });
    }
    return summed(squares, update);
  }

  const AdafactorNumbers numbers_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const AdafactorNumbers& numbers) {
  return std::make_unique<Adafactor>(numbers);
}

}  // namespace argosy::optim
