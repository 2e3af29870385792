#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/optimizer.hpp"
#include "optim/optim_config.hpp"
#include "partition/flat_space.hpp"

/// How an optimizer changes what one rank owns of a unit's flat space. Owns nothing but its numbers: the tensors that
/// state_of() declares lie in the runner's buffers and are borrowed as views.
namespace argosy::optim {

/// Whose random numbers round weights that have no fp32 master: the parameters of a model are numbered over its units,
/// in flat order in each, so that numbers do not depend on the layout.
struct RoundingNames {
  std::uint64_t seed = 0;
  std::int64_t first_parameter = 0;  // of the unit
};

/// One rank's flat state of a unit. Tensors: [space.owned_size(rank)] fp32, slices ascending; master: bf16 where the
/// weights have no other, which are then rounded stochastically.
struct ShardState {
  at::Tensor master, gradient;
  std::vector<at::Tensor> states;  // the optimizer's own, as own_state_of() lists them
  RoundingNames rounding;          // of a bf16 master
  at::Tensor ema;                  // running mean of an fp32 master; undefined: none
  /// Flat buffer, from element `weights_begin` of the unit on, that the new values also go to; undefined: nowhere else.
  at::Tensor weights;
  std::int64_t weights_begin = 0;
};

/// A part of a shard that takes one launch: inside one slice, and all or nothing of it decays; of a bf16 master, inside
/// one parameter and the gap after it.
struct Piece {
  at::Tensor master, gradient;
  std::vector<at::Tensor> states;
  std::optional<at::Tensor> weights, ema;
  bool decays = false;
  kernels::Rounding rounding{};
};

/// Cuts a shard at the ends of slices and where decay begins, or where a parameter begins. Views, made once.
[[nodiscard]] std::vector<Piece> pieces_of(const partition::FlatSpace& space, int canonical_rank,
                                           const ShardState& shard);

/// Σ of squares of the gradient shards, fp64, in order; a host number. Waits for the device.
[[nodiscard]] double sum_of_squares(std::span<const Piece> pieces);

/// How much of a running mean of final decay `ema` stays at update `t`: less at first, when the mean still holds the
/// initial weights: min(ema, (t+1)/(t+10)).
[[nodiscard]] double ema_decay(double ema, std::int64_t t);

/// One step's numbers. coefficient: [1] fp32 on the device, multiplied into the gradient; negative: the step is skipped
/// and nothing changes.
struct Update {
  double lr = 0;
  std::int64_t number = 1;  // updates done, this one included
  at::Tensor coefficient;
};

class Optimizer {
 public:
  /// ema: decay of the running mean; 0: none.
  explicit Optimizer(double ema) : ema_(ema) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of weights and state, and of the running mean, where there is one. The bits of an element do not depend
  /// on how the unit is sharded.
  void update(std::span<const Piece> pieces, const Update& update) const;

 private:
  virtual void update_weights(const Piece& piece, const Update& update) const = 0;
  double ema_;
};

/// The optimizer that the configuration names, with the defaults of the model's kind.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, bool language_model,
                                                        bool has_master);
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const AdamwNumbers& numbers);

}  // namespace argosy::optim
