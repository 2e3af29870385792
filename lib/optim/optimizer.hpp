#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/optimizer.hpp"
#include "optim/optim_config.hpp"
#include "partition/flat_space.hpp"
#include "spec/model_spec.hpp"

/// How an optimizer updates the part of a unit's flat space that one rank owns. It holds only its numbers: the tensors
/// that state_of() declares are in the runner's buffers and are passed as views.
namespace argosy::optim {

/// Identifies the random numbers that round weights without an fp32 master. The parameters of a model are numbered over
/// its units, in flat order within each, so that the numbers do not depend on the layout.
struct RoundingNames {
  std::uint64_t seed = 0;
  std::int64_t first_parameter = 0;  // of the unit
};

/// State with one element per row or column of a unit's matrices (spec::Extent), such as the second moments of
/// Adafactor (arXiv:1804.04235). Each tensor has a flat space of its own, sharded like any other.
struct Statistics {
  struct Matrix {
    std::int64_t begin = 0, rows = 0, columns = 0;  // begin: in the unit's flat space
  };
  struct Tensor {
    std::string name;
    partition::FlatSpace space;  // parameter i: of matrices[i]
    at::Tensor shard;            // [space.owned_size(rank)] fp32, slices ascending
  };
  int canonical_rank = 0;
  std::vector<Matrix> matrices;  // of the unit, also if there are no tensors
  std::vector<Tensor> tensors;   // in the order of own_state_of()
};

/// Lists the matrices, and makes the tensors of `state` that are by row or column, zero. space: the unit's.
[[nodiscard]] Statistics statistics_of(const spec::Unit& unit, const partition::FlatSpace& space, int canonical_rank,
                                       const spec::StateOf& state, at::TensorOptions options);

/// One rank's flat state of a unit. Tensors: [space.owned_size(rank)] fp32, slices ascending. The master is bf16 if the
/// weights have no fp32 master; it is then rounded stochastically.
struct ShardState {
  at::Tensor master, gradient;  // gradient undefined: frozen
  /// A tensor of the optimizer's own, fp32 or u8: one number for so many elements of the shard, from `begin` on.
  struct Own {
    at::Tensor numbers;
    std::int64_t begin = 0, elements = 1;
  };
  std::vector<Own> states;  // by element or block, as own_state_of() lists them
  RoundingNames rounding;   // of what is bf16
  at::Tensor ema;           // running mean of an fp32 master; undefined: none
  /// Flat buffer, from element `weights_begin` of the unit on, that also receives the new values; undefined: none.
  at::Tensor weights;
  std::int64_t weights_begin = 0;
};

/// A part of a shard that is updated by one launch: it lies within one slice, and either all or none of it decays. With
/// a bf16 master it lies within one parameter and the gap after it.
struct Piece {
  std::int64_t begin = 0;  // in the unit's flat space
  at::Tensor master, gradient;
  std::vector<at::Tensor> states;  // those of the shard that are kept for it
  std::optional<at::Tensor> weights, ema;
  bool decays = false;
  kernels::Rounding rounding{};
};

/// Cuts a shard at the ends of slices and where decay begins; with a bf16 master where a parameter begins. The pieces
/// are views and are made once.
[[nodiscard]] std::vector<Piece> pieces_of(const partition::FlatSpace& space, int canonical_rank,
                                           const ShardState& shard);

/// What a piece has of a matrix: `size` elements, from element `begin` of the matrix and element `at` of the piece on.
struct MatrixPart {
  const Piece* piece = nullptr;
  std::size_t matrix = 0;  // index in Statistics::matrices
  std::int64_t begin = 0, at = 0, size = 0;
};
/// Sorted by piece, then by place. Pads are in no part.
[[nodiscard]] std::vector<MatrixPart> matrix_parts(std::span<const Piece> pieces, const Statistics& statistics);

/// Gives a piece its new values, [n] fp32, which are in the master already if that is fp32.
void store_weights(const Piece& piece, const at::Tensor& values, std::int64_t number);

/// Sum of squares of the gradient shards, in fp64 and in order, as a host number. Waits for the device.
[[nodiscard]] double sum_of_squares(std::span<const Piece> pieces);

/// The numbers of one step. coefficient: [1] fp32 on the device, multiplied into the gradient; if it is negative, the
/// step is skipped and nothing changes.
struct Update {
  double lr = 0;
  std::int64_t number = 1;  // of updates, including this one
  at::Tensor coefficient;
  /// Adds up an array over the ranks that share the unit, in a fixed order. **Collective.**
  std::function<void(std::span<double>)> sum{};
};

class Optimizer {
 public:
  /// ema: decay of the running mean, which is at most (t+1)/(t+10) at update t; 0: none.
  explicit Optimizer(double ema) : ema_(ema) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates the weights and the state of a unit and, if there is one, the running mean. Without statistics, the bits
  /// of an element do not depend on how the unit is sharded; with statistics, the update is **collective**.
  void update(std::span<const Piece> pieces, const Statistics& statistics, const Update& update) const;

  /// Of units with matrices that are updated as a whole, such as Muon's, before update(). prepare() leaves in the
  /// gradient of each piece what is to be transformed; then transform() replaces it, on each rank for the matrices that
  /// it owns; update() finds the result in the gradients of the pieces.
  virtual void prepare(std::span<const Piece> /*pieces*/, const Update& /*update*/) const {}
  /// matrices: each [rows, columns] fp32. type: of the weights in products, fp32 or bf16; products of the
  /// transformation have the same.
  virtual void transform(std::span<const at::Tensor> /*matrices*/, at::ScalarType /*type*/) const {}

 private:
  virtual void update_weights(std::span<const Piece> pieces, const Statistics& statistics,
                              const Update& update) const = 0;
  double ema_;
};

/// The optimizer that the configuration names, with the defaults for the kind of model.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, bool language_model,
                                                        bool has_master);
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const AdamwNumbers& numbers);
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor(const AdafactorNumbers& numbers);
/// numbers: of AdamW, for all but the matrices of blocks; the weight decay of both.
[[nodiscard]] std::unique_ptr<Optimizer> make_muon(const AdamwNumbers& numbers, double momentum);

}  // namespace argosy::optim
