#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <string>
#include <vector>

#include "optim/optimizer.hpp"

namespace argosy::test {

/// Muon (K. Jordan et al., 2024): the momentum of a matrix is replaced by a matrix with nearly the same singular
/// vectors and singular values near 1, by five steps of a Newton-Schulz iteration. Vectors follow their gradient. It
/// shows that an optimizer may need matrices as a whole.
class Muon final : public optim::Optimizer {
 public:
  Muon() : Optimizer(0) {}
  static std::vector<spec::StateTensor> state(const spec::Unit& /*unit*/) {
    return {{std::string(spec::weights_tensor)}, {"momentum"}};
  }
  /// The blocks: embeddings and heads follow their gradient.
  static std::set<std::size_t> whole_units(const spec::ModelSpec& spec) {
    std::set<std::size_t> units;
    for (std::size_t u = 0; u < spec.units.size(); ++u)
      if (spec.units[u].is_block) units.insert(u);
    return units;
  }

  void prepare(std::span<const optim::Piece> pieces, const optim::Update& update) const override {
    const auto coefficient = update.coefficient.item<double>();
    if (coefficient < 0) return;
    for (const optim::Piece& piece : pieces) {
      piece.gradient.mul_(coefficient);
      if (!piece.decays) continue;
      piece.states.front().mul_(mix).add_(piece.gradient);
      piece.gradient.add_(piece.states.front(), mix);
    }
  }
  void transform(const spec::Matrix& matrix, const at::Tensor& values) const override {
    if (matrix.columns == 1) return;
    at::Tensor x = values / (values.norm() + 1e-12);
    if (matrix.rows > matrix.columns) x = x.t();
    for (int i = 0; i < 5; ++i) {
      const at::Tensor a = x.matmul(x.t());
      x = 3.4445 * x + (-4.775 * a + 2.0315 * a.matmul(a)).matmul(x);
    }
    values.copy_(matrix.rows > matrix.columns ? x.t() : x);
  }

 private:
  static constexpr double mix = 0.95;

  void update_weights(std::span<const optim::Piece> pieces, const optim::Statistics& /*none*/,
                      const optim::Update& update) const override {
    if (update.coefficient.item<double>() < 0) return;
    for (const optim::Piece& piece : pieces) {
      piece.master.sub_(piece.gradient, update.lr);
      if (piece.weights) piece.weights->copy_(piece.master);
    }
  }
};

}  // namespace argosy::test
