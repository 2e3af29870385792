#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/optimizer.hpp"
#include "optim/optim_config.hpp"
#include "partition/flat_space.hpp"

/// How an optimizer updates the part of a unit's flat space that one rank owns. It holds only its numbers: the tensors
/// that state_of() declares are in the runner's buffers and are passed as views.
namespace argosy::optim {

/// Identifies the random numbers that round weights without an fp32 master. The parameters of a model are numbered over
/// its units, in flat order within each, so that the numbers do not depend on the layout.
struct RoundingNames {
  std::uint64_t seed = 0;
  std::int64_t first_parameter = 0;  // of the unit
};

/// One rank's flat state of a unit. Tensors: [space.owned_size(rank)] fp32, slices ascending. The master is bf16 if the
/// weights have no fp32 master; it is then rounded stochastically.
struct ShardState {
  at::Tensor master, gradient;
  std::vector<at::Tensor> states;  // the optimizer's own, as own_state_of() lists them
  RoundingNames rounding;          // of a bf16 master
  at::Tensor ema;                  // running mean of an fp32 master; undefined: none
  /// Flat buffer, from element `weights_begin` of the unit on, that also receives the new values; undefined: none.
  at::Tensor weights;
  std::int64_t weights_begin = 0;
};

/// A part of a shard that is updated by one launch: it lies within one slice, and either all or none of it decays. With
/// a bf16 master it lies within one parameter and the gap after it.
struct Piece {
  at::Tensor master, gradient;
  std::vector<at::Tensor> states;
  std::optional<at::Tensor> weights, ema;
  bool decays = false;
  kernels::Rounding rounding{};
};

/// Cuts a shard at the ends of slices and where decay begins; with a bf16 master where a parameter begins. The pieces
/// are views and are made once.
[[nodiscard]] std::vector<Piece> pieces_of(const partition::FlatSpace& space, int canonical_rank,
                                           const ShardState& shard);

/// Sum of squares of the gradient shards, in fp64 and in order, as a host number. Waits for the device.
[[nodiscard]] double sum_of_squares(std::span<const Piece> pieces);

/// Decay of a running mean at update `t`: min(ema, (t+1)/(t+10)). It is smaller at first, while the mean still contains
/// the initial weights.
[[nodiscard]] double ema_decay(double ema, std::int64_t t);

/// The numbers of one step. coefficient: [1] fp32 on the device, multiplied into the gradient; if it is negative, the
/// step is skipped and nothing changes.
struct Update {
  double lr = 0;
  std::int64_t number = 1;  // of updates, including this one
  at::Tensor coefficient;
};

class Optimizer {
 public:
  /// ema: decay of the running mean; 0: none.
  explicit Optimizer(double ema) : ema_(ema) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates weights, state and, if there is one, the running mean. The bits of an element do not depend on how the
  /// unit is sharded.
  void update(std::span<const Piece> pieces, const Update& update) const;

 private:
  virtual void update_weights(const Piece& piece, const Update& update) const = 0;
  double ema_;
};

/// The optimizer that the configuration names, with the defaults for the kind of model.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, bool language_model,
                                                        bool has_master);
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const AdamwNumbers& numbers);

}  // namespace argosy::optim
