#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>

#include "kernels/gemm.hpp"
#include "optim/optimizer.hpp"

namespace argosy::optim {
namespace {

/// Five steps of the Newton-Schulz iteration: x becomes a·x + b·x·xᵀ·x + c·(x·xᵀ)²·x. In bf16 it is K. Jordan's: x and
/// both factors of each product are stored in bf16, sums are fp32.
struct Orthogonal {
  static at::Tensor in_fp32(at::Tensor x) {
    for (int step = 0; step < steps; ++step) {
      const at::Tensor square = x.matmul(x.t());
      x = x * a + (square * b + square.matmul(square) * c).matmul(x);
    }
    return x;
  }
  static at::Tensor in_bf16(const at::Tensor& start) {
    at::Tensor x = start.to(at::kBFloat16).contiguous();
    const at::Tensor factor = at::empty({x.size(0), x.size(0)}, start.options());
    for (int step = 0; step < steps; ++step) {
      const at::Tensor square = kernels::gemm(x, x.t());
      kernels::gemm(square, square, factor);
      factor.mul_(c).add_(square, b);
      const at::Tensor next = x.to(at::kFloat).mul_(a);
      kernels::gemm(factor.to(at::kBFloat16), x, next, {.accumulate = true});
      x = next.to(at::kBFloat16);
    }
    return x.to(at::kFloat);
  }

 private:
  static constexpr int steps = 5;
  static constexpr double a = 3.4445, b = -4.775, c = 2.0315;
};

/// Muon (K. Jordan et al., 2024): the step of a hidden matrix is its momentum made nearly orthogonal by five steps of a
/// Newton-Schulz iteration, times 0.2·√max(rows, columns), so that its root mean square is near that of AdamW's steps
/// (arXiv:2502.16982). Decoupled weight decay. All else is AdamW's.
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

  void transform(std::span<const at::Tensor> matrices, at::ScalarType type) const override {
    const auto each = [&](std::int64_t begin, std::int64_t end) {
      for (const at::Tensor& matrix : matrices.subspan(begin, end - begin)) transform(matrix, type);
    };
    const std::int64_t count = std::ssize(matrices);
    // A product of small matrices is too little work for several threads.
    const bool one_a_thread = type == at::kBFloat16 && count >= at::get_num_threads() && matrices.front().is_cpu();
    one_a_thread ? at::parallel_for(0, count, 1, each) : each(0, count);
  }

 private:
  static void transform(const at::Tensor& matrix, at::ScalarType type) {
    const bool is_tall = matrix.size(0) > matrix.size(1);
    at::Tensor x = matrix / matrix.norm().clamp_min(1e-7);
    if (is_tall) x = x.t();
    x = type == at::kBFloat16 ? Orthogonal::in_bf16(x) : Orthogonal::in_fp32(x);
    const auto larger = static_cast<double>(std::max(matrix.size(0), matrix.size(1)));
    matrix.copy_((is_tall ? x.t() : x) * (0.2 * std::sqrt(larger)));
  }
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
