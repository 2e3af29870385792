#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>

#include "optim/optimizer.hpp"

namespace argosy::optim {
namespace {

/// Muon (K. Jordan et al., 2024): the step of a hidden matrix is its momentum made nearly orthogonal by five steps of a
/// Newton-Schulz iteration, in fp32, times 0.2·√max(rows, columns), so that its root mean square is near that of
/// AdamW's steps (arXiv:2502.16982). Decoupled weight decay. All else is AdamW's.
class Muon final : public Optimizer {
 public:
  Muon(const AdamwNumbers& numbers, double momentum)
      : Optimizer(numbers.ema),
        weight_decay_(numbers.weight_decay),
        momentum_(momentum),
        rest_(make_adamw(without_mean(numbers))) {}

  void prepare(std::span<const Piece> pieces, const Update& update) const override {
    const auto coefficient = update.coefficient.item<double>();
    if (coefficient < 0) return;
    for (const Piece& piece : pieces) {
      if (!is_hidden(piece)) continue;
      piece.gradient.mul_(coefficient);
      piece.states.front().lerp_(piece.gradient, 1 - momentum_);
      piece.gradient.lerp_(piece.states.front(), momentum_);  // Nesterov
    }
  }

  void transform(const spec::Matrix& matrix, const at::Tensor& values) const override {
    if (!matrix.parameter->decay) return;
    constexpr double a = 3.4445, b = -4.775, c = 2.0315;
    const bool is_tall = matrix.rows > matrix.columns;
    at::Tensor x = values / values.norm().clamp_min(1e-7);
    if (is_tall) x = x.t();
    for (int step = 0; step < 5; ++step) {
      const at::Tensor square = x.matmul(x.t());
      x = x * a + (square * b + square.matmul(square) * c).matmul(x);
    }
    values.copy_((is_tall ? x.t() : x) * (0.2 * std::sqrt(static_cast<double>(std::max(matrix.rows, matrix.columns)))));
  }

 private:
  /// update() makes the running mean of all.
  static AdamwNumbers without_mean(AdamwNumbers numbers) {
    numbers.ema = 0;
    return numbers;
  }
  /// Those of AdamW have two moments.
  static bool is_hidden(const Piece& piece) { return piece.states.size() == 1; }

  void update_weights(std::span<const Piece> pieces, const Statistics& statistics,
                      const Update& update) const override {
    if (update.coefficient.item<double>() < 0) return;
    for (const Piece& piece : pieces) {
      if (!is_hidden(piece)) {
        rest_->update({&piece, 1}, statistics, update);
        continue;
      }
      const at::Tensor values = piece.master.to(at::kFloat);  // the master itself if it is fp32
      values.mul_(1 - update.lr * weight_decay_).sub_(piece.gradient, update.lr);
      store_weights(piece, values, update.number);
    }
  }

  double weight_decay_, momentum_;
  std::unique_ptr<Optimizer> rest_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const AdamwNumbers& numbers, double momentum) {
  return std::make_unique<Muon>(numbers, momentum);
}

}  // namespace argosy::optim
