#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "kernels/optimizer.hpp"
#include "optim/optim_config.hpp"
#include "partition/flat_space.hpp"

/// AdamW over what one rank owns of a unit's flat space. Owns nothing: the runner's buffers are borrowed as views.
namespace argosy::optim {

/// Whose random numbers round weights that have no fp32 master: the parameters of a model are numbered over its units,
/// in flat order in each, so that numbers do not depend on the layout.
struct RoundingNames {
  std::uint64_t seed = 0;
  std::int64_t first_parameter = 0;  // of the unit
};

/// One rank's flat state of a unit. shard tensors: [space.owned_size(rank)] fp32, slices ascending; master: bf16 where
/// the weights have no other, which are then rounded stochastically.
struct ShardState {
  at::Tensor master, exp_avg, exp_avg_sq, gradient;
  RoundingNames rounding;  // of a bf16 master
  at::Tensor ema;          // running mean of an fp32 master; undefined: none
  /// Flat buffer, from element `weights_begin` of the unit on, that the new values also go to; undefined: nowhere else.
  at::Tensor weights;
  std::int64_t weights_begin = 0;
};

/// A stretch of a shard that takes one launch: inside one slice, and all or nothing of it decays; of a bf16 master,
/// inside one parameter and the gap after it.
struct Stretch {
  at::Tensor master, exp_avg, exp_avg_sq, gradient;
  std::optional<at::Tensor> weights, ema;
  bool decays = false;
  kernels::Rounding rounding{};
};

/// Cuts a shard at the ends of slices and where decay begins, or where a parameter begins. Views, made once.
[[nodiscard]] std::vector<Stretch> stretches_of(const partition::FlatSpace& space, int canonical_rank,
                                                const ShardState& shard);

/// Σ of squares of the gradient shards, fp64, in order; a host number. Waits for the device.
[[nodiscard]] double sum_of_squares(std::span<const Stretch> stretches);

/// How much of a running mean stays at update `t`: numbers.ema, and less at first, when the mean still holds the
/// initial weights: min(β, (t+1)/(t+10)).
[[nodiscard]] double ema_decay(const AdamwNumbers& numbers, std::int64_t t);

/// One update number `t` (from 1) of gradient·coefficient, and of the running mean, where there is one. coefficient:
/// [1] fp32 on the device. The bits of an element do not depend on how the unit is sharded.
void adamw(std::span<const Stretch> stretches, const AdamwNumbers& numbers, double lr, std::int64_t t,
           const at::Tensor& coefficient);

}  // namespace argosy::optim
