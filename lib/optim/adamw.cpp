#include <ATen/TensorOperators.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "optim/moments.hpp"
#include "optim/optimizer.hpp"

namespace argosy::optim {
namespace {

/// Decoupled weight decay (arXiv:1711.05101). States: first and second moment. With update_clip d it is StableAdamW
/// (arXiv:2304.13013): the learning rate of each matrix is divided by max(1, RMS/d), where RMS² is the mean of
/// gradient²/max(v, ε²) and v the second moment after the update, without its bias.
class Adamw final : public Optimizer {
 public:
  explicit Adamw(const AdamwNumbers& numbers) : Optimizer(numbers.ema), numbers_(numbers), moments_(numbers.state) {}

 private:
  void update_weights(std::span<const Piece> pieces, const Statistics& statistics,
                      const Update& update) const override {
    if (numbers_.update_clip > 0) return update_clipped(pieces, statistics, update);
    for (const Piece& piece : pieces)
      Moments::is_plain(piece) ? update_plain(piece, update) : update_coded(piece, update);
  }

  [[nodiscard]] kernels::AdamwOptions options_of(const Piece& piece, const Update& update, double lr) const {
    return {.lr = lr,
            .beta1 = numbers_.beta1,
            .beta2 = numbers_.beta2,
            .epsilon = numbers_.epsilon,
            .weight_decay = piece.decays ? numbers_.weight_decay : 0.0,
            .step = update.number};
  }

  void update_plain(const Piece& piece, const Update& update) const {
    const kernels::AdamwOptions options = options_of(piece, update, update.lr);
    const at::Tensor &first = piece.states[0], &second = piece.states[1];
    const bool has_wide_master = piece.master.scalar_type() == at::kFloat;
    const bool rounds = has_wide_master && piece.weights && piece.weights->scalar_type() == at::kBFloat16;
    if (has_wide_master) {
      kernels::adamw_(piece.master, first, second, piece.gradient, rounds ? piece.weights : std::nullopt,
                      update.coefficient, options);
    } else {
      kernels::adamw_stochastic_(piece.master, first, second, piece.gradient, update.coefficient, options,
                                 piece.rounding);
    }
    if (piece.weights && !rounds) piece.weights->copy_(piece.master);
  }

  /// Parts of a piece, so that there are never many decoded moments.
  template <class F>
  static void for_chunks(const Piece& piece, F use) {
    constexpr std::int64_t most = 1 << 20;
    for (std::int64_t begin = 0, size = piece.master.numel(); begin < size; begin += most)
      use(part_of(piece, begin, std::min(most, size - begin)));
  }

  void update_coded(const Piece& piece, const Update& update) const {
    if (update.coefficient.item<float>() < 0) return;
    for_chunks(piece, [&](const Piece& chunk) {
      const at::Tensor values = chunk.master.to(at::kFloat), first = moments_.read(chunk, 0),
                       second = moments_.read(chunk, 1);
      kernels::adamw_(values, first, second, chunk.gradient, std::nullopt, update.coefficient,
                      options_of(chunk, update, update.lr));
      store(chunk, values, {first, second}, update);
    });
  }

  void store(const Piece& chunk, const at::Tensor& values, const std::array<at::Tensor, 2>& moments,
             const Update& update) const {
    for (const std::size_t which : {0U, 1U}) moments_.write(chunk, which, moments[which], update.number);
    store_weights(chunk, values, update.number);
  }

  void update_clipped(std::span<const Piece> pieces, const Statistics& statistics, const Update& update) const {
    const auto coefficient = update.coefficient.item<float>();
    if (coefficient < 0) return;
    const std::vector<double> rates = clipped_rates(pieces, statistics, update, coefficient);
    for (const Piece& piece : pieces) {
      for_chunks(piece, [&](const Piece& chunk) {
        const at::Tensor values = chunk.master.to(at::kFloat), first = moments_.read(chunk, 0),
                         second = moments_.read(chunk, 1);
        for (const MatrixPart& part : matrix_parts({&chunk, 1}, statistics)) {
          const auto own = [&](const at::Tensor& of) { return of.narrow(0, part.at, part.size); };
          kernels::adamw_(own(values), own(first), own(second), own(chunk.gradient), std::nullopt, update.coefficient,
                          options_of(chunk, update, rates[part.matrix]));
        }
        store(chunk, values, {first, second}, update);
      });
    }
  }

  /// The learning rate of each matrix.
  [[nodiscard]] std::vector<double> clipped_rates(std::span<const Piece> pieces, const Statistics& statistics,
                                                  const Update& update, float coefficient) const {
    const double correction = 1 - std::pow(numbers_.beta2, static_cast<double>(update.number)),
                 least = numbers_.epsilon * numbers_.epsilon;
    std::vector<double> sums(statistics.matrices.size());
    for (const Piece& piece : pieces) {
      for_chunks(piece, [&](const Piece& chunk) {
        const at::Tensor squares = (chunk.gradient * coefficient).square();
        const at::Tensor second = moments_.read(chunk, 1) * numbers_.beta2 + squares * (1 - numbers_.beta2);
        const at::Tensor ratios = squares.to(at::kDouble) / (second.to(at::kDouble) / correction).clamp_min(least);
        for (const MatrixPart& part : matrix_parts({&chunk, 1}, statistics))
          sums[part.matrix] += ratios.narrow(0, part.at, part.size).sum().item<double>();
      });
    }
    update.sum(sums);
    for (std::size_t m = 0; m < sums.size(); ++m) {
      const auto& [begin, rows, columns] = statistics.matrices[m];
      const double rms = std::sqrt(sums[m] / static_cast<double>(rows * columns));
      sums[m] = update.lr / std::max(1.0, rms / numbers_.update_clip);
    }
    return sums;
  }

  const AdamwNumbers numbers_;
  const Moments moments_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamwNumbers& numbers) { return std::make_unique<Adamw>(numbers); }

}  // namespace argosy::optim
