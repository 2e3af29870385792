#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives.hpp"
#include "model/model.hpp"
#include "optim/optimizer.hpp"
#include "plan/step_plan.hpp"

/// All flat memory of a run, allocated before step 1. The scheme and the plan's shape decide whether a unit has its own
/// buffers for weights and gradients, or rotates: it then shares one of two buffers with every second unit. This rank's
/// shard holds master weights, gradient sums and the optimizer's state. If a unit has its own buffers and the rank owns
/// one slice of it, the shard is a view of these buffers, so a single rank copies nothing.
namespace argosy::train {

struct UnitBuffers {
  at::Tensor weights;    // [padded] compute type
  at::Tensor gradients;  // [padded] fp32; gaps stay zero if the unit does not rotate; undefined: frozen
  bool rotates_weights = false, rotates_gradients = false;
  at::Tensor held_weights, held_gradients;  // hybrid and rotating: this rank's slots, gathered and summed in the node
  optim::ShardState shard;
  /// The tensors of `shard` that are kept from step to step: what and where, in the order of checkpoints.
  std::vector<std::pair<spec::StateTensor, at::Tensor>> state;
  optim::Statistics statistics;  // kept likewise
  bool sums_in_place = false;    // shard.gradient is a view of this rank's slice of `gradients`
  std::vector<optim::Piece> pieces;
  /// Frozen, with its own buffers: the slices of all ranks are in `weights`.
  bool is_complete = false;
  [[nodiscard]] bool is_frozen() const { return !gradients.defined(); }
  [[nodiscard]] bool is_here() const { return weights.defined(); }
};

struct BufferChoices {
  plan::Scheme scheme = plan::Scheme::stage_1;
  plan::ReduceEvery reduce_every = plan::ReduceEvery::step;
  at::ScalarType compute_type = at::kFloat;
  at::ScalarType master_type = at::kFloat;  // bf16: there are no fp32 master weights
  std::uint64_t seed = 1;                   // of the stochastic rounding of bf16 weights
  spec::StateOf state;                      // what is kept for each unit (optim::state_of)
  c10::Device device = c10::kCPU;
};

class Buffers {
 public:
  /// Allocates the buffers and binds the units of `model` to them; units that no visit reads have none.
  /// canonical_ranks: of this rank, by component, among the ranks that have it; -1: this one does not, and its units
  /// have no memory. Not collective.
  Buffers(model::Model& model, std::vector<int> canonical_ranks, const BufferChoices& choices);

  /// Writes elements [begin, end) of a parameter to `values`.
  using InitialValues =
      std::function<void(const spec::Parameter& parameter, std::int64_t begin, std::int64_t end, float* values)>;
  /// Fills this rank's slices with the initial weights. Not collective.
  void initialise(const InitialValues& initial_values);
  /// The same with random weights.
  void initialise(std::uint64_t seed);

  [[nodiscard]] std::vector<UnitBuffers>& units() noexcept { return units_; }
  /// Exchanges the master weights with their running mean, also in the buffers that gathers read. A second call undoes
  /// it.
  void swap_ema();
  /// Casts the master weights into the buffers that gathers read.
  void cast_masters();

  /// Puts this rank's slice of a unit's weights into its buffer, for the next gather. If the unit rotates, the slice is
  /// cast from the master weights or copied from the held slots; otherwise it is already in place.
  void place_own_weights(std::size_t unit);
  /// Copies this rank's slices of the summed gradient into the unit's flat gradient buffer, or back.
  void place_own_gradients(std::size_t unit);
  void take_own_gradients(std::size_t unit);
  /// Zeroes the gaps between a rotating unit's parameters, in which another unit may have left values.
  void clear_gaps(std::size_t unit);

 private:
  enum class Copy { to_flat, to_shard };
  /// Copies this rank's slices between a flat buffer of the unit and a shard, unless the one is a view of the other.
  void copy_own_slices(std::size_t unit, const at::Tensor& flat, const at::Tensor& shard, Copy copy) const;

  model::Model& model_;
  [[nodiscard]] int rank_in(std::size_t unit) const { return canonical_ranks_[model_.spec().units[unit].component]; }

  std::vector<int> canonical_ranks_;
  std::vector<UnitBuffers> units_;
};

/// Of a tensor of state.
[[nodiscard]] at::ScalarType stored_type(DType dtype);

/// A flat tensor as collectives take it.
[[nodiscard]] comm::BufferView view_of(const at::Tensor& tensor);

}  // namespace argosy::train
