#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "comm/collectives.hpp"
#include "model/model.hpp"
#include "optim/optimizer.hpp"
#include "plan/step_plan.hpp"

/// All flat memory of a run, made before step 1. A unit's weights and gradients lie in buffers of its own or in one of
/// two that it shares with every second unit, as the scheme and the plan's shape say; bound to the model once. This
/// rank's shard of master weights, gradient sums and moments lies beside them, or, where the rank owns one slice of a
/// unit that has buffers of its own, inside them: a world of one copies nothing.
namespace argosy::train {

struct UnitBuffers {
  at::Tensor weights;    // [padded] compute type
  at::Tensor gradients;  // [padded] fp32; gaps stay zero where the buffer is the unit's own
  bool rotates_weights = false, rotates_gradients = false;
  at::Tensor held_weights,
      held_gradients;          // hybrid, where they rotate: this rank's slots, complete and summed in the node
  optim::ShardState shard;     // [owned] each
  bool sums_in_place = false;  // shard.gradient is the own slice of gradients
  std::vector<optim::Piece> pieces;
};

struct BufferChoices {
  plan::Scheme scheme = plan::Scheme::stage_1;
  plan::ReduceEvery reduce_every = plan::ReduceEvery::step;
  at::ScalarType compute_type = at::kFloat;
  at::ScalarType master_type = at::kFloat;  // bf16: the weights have no fp32 master
  std::uint64_t seed = 1;                   // of their rounding
  /// All that is kept of each parameter (optim::state_of).
  std::vector<spec::StateTensor> state{};
  c10::Device device = c10::kCPU;
};

class Buffers {
 public:
  /// Binds `model`'s units to new buffers. Not collective.
  Buffers(model::Model& model, int canonical_rank, const BufferChoices& choices);

  /// This rank's slices of the initial weights. Not collective.
  void initialise(std::uint64_t seed);

  [[nodiscard]] std::vector<UnitBuffers>& units() noexcept { return units_; }
  /// This rank's shard of each tensor that is kept of a unit, under its name, in stored order.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state_of(std::size_t unit) const;
  /// Exchanges the master weights with their running mean, where gathers start from too; a second time undoes it.
  void swap_ema();
  /// Brings the master weights to where gathers start from.
  void cast_masters();

  /// The own part of a unit's weights, ready to be gathered: cast from the master, or copied from the slots held, where
  /// the buffer rotates; elsewhere it is in place already.
  void place_own_weights(std::size_t unit);
  /// A rotating buffer has whatever another unit left between this unit's parameters.
  void clear_gaps(std::size_t unit);

 private:
  model::Model& model_;
  int canonical_rank_;
  std::vector<spec::StateTensor> state_;
  std::vector<UnitBuffers> units_;
};

/// The view a collective takes of a flat tensor.
[[nodiscard]] comm::BufferView view_of(const at::Tensor& tensor);

}  // namespace argosy::train
