#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "optim/optim_config.hpp"
#include "partition/flat_space.hpp"
#include "plan/placement.hpp"
#include "plan/run_config.hpp"
#include "spec/model_spec.hpp"

/// Bytes that a rank holds during training, by group, from shapes alone: the state of each sharding scheme (ZeRO,
/// arXiv:1910.02054) over padded flat spaces, the rotating buffers, scratch space of exact sums, and what a micro-batch
/// keeps for its backward pass. Pure. Code that allocates these buffers uses the same functions.
namespace argosy::plan {

/// Units of one kind, elements with padding.
struct Part {
  std::int64_t padded = 0;
  std::int64_t owned = 0;  // by a rank: its slices
  std::int64_t held = 0;   // by the same rank: its slots, which it holds when sharding is inside the node
  std::int64_t apart = 0;  // of owned: the slices of units of which the rank owns several
};

/// Sizes of the flat spaces of all units, elements with padding.
struct SpaceSizes {
  partition::Layout layout{};
  int units = 0;
  std::int64_t parameters = 0, padded = 0;  // of the whole model: tied once, no padding; elements with padding
  Part all;
  std::int64_t largest = 0;  // unit that is reduced
  /// Elements of the buffers that units use in turns: as large as the largest block, and the largest that is trained.
  std::int64_t rotating = 0, rotating_trained = 0;
  /// Units that have their own buffers in every scheme: larger than a block, or visited several times (tied).
  Part resident;
  Part frozen, frozen_resident;
  [[nodiscard]] Part trained() const;
  Part state;  // bytes kept besides the weights: the optimizer's own, a running mean
};
/// state: what is kept for each unit. Of the units that `canonical_rank` has by `placement`, and of what it owns of
/// them; without a rank, of the one that owns most, where all ranks have all units.
[[nodiscard]] SpaceSizes space_sizes(const spec::ModelSpec& spec, const partition::Layout& layout,
                                     const spec::StateOf& state = optim::state_of({}), const Placement& placement = {},
                                     std::optional<int> canonical_rank = {});

/// Bytes that each rank keeps besides the weights: SpaceSizes::state.owned of every rank.
[[nodiscard]] std::vector<std::int64_t> kept_bytes(const spec::ModelSpec& spec, const partition::Layout& layout,
                                                   const spec::StateOf& state, const Placement& placement);

/// Of a rank, for the copy of its state that checkpoints are written from: masters, and what is kept besides.
[[nodiscard]] inline std::int64_t copied_bytes(const SpaceSizes& sizes) {
  return 4 * sizes.all.owned + sizes.state.owned;
}

/// Schemes of other programs, planned for comparison and never run. ddp: every rank holds everything, and gradients are
/// all-reduced (DistributedDataParallel). hsdp: everything is sharded inside a node and replicated across nodes, over
/// which gradients are all-reduced (FSDP's hybrid sharding).
enum class Comparison { ddp, hsdp };
BOOST_DESCRIBE_ENUM(Comparison, ddp, hsdp)
/// The scheme of Argosy that computes and sends in the same order.
[[nodiscard]] constexpr Scheme like(Comparison other) {
  return other == Comparison::ddp ? Scheme::stage_1 : Scheme::hybrid;
}

struct StateChoices {
  Scheme scheme = Scheme::stage_1;
  std::int64_t weight_bytes = 2, gradient_bytes = 4;        // of an element
  std::int64_t master_bytes = 4;                            // as weight_bytes: the weights are the master
  std::int64_t inner_wire_bytes = 4, outer_wire_bytes = 4;  // of a gradient when it is sent
  comm::Reduction reduction = comm::Reduction::exact;       // elastic: sums of micro-batches are apart from gradients
};

/// Bytes of the fullest rank.
struct StateMemory {
  std::int64_t weights = 0, gradients = 0, optimizer = 0;
  std::int64_t rotating_weights = 0, rotating_gradients = 0;
  std::int64_t scratch = 0;  // of sums, at most; less if a backend cuts a unit into pieces
  /// Weights beyond these, while a validation translates: then there is neither scratch nor a micro-batch.
  std::int64_t translating = 0;
  /// What is held all the time.
  [[nodiscard]] std::int64_t state() const {
    return weights + gradients + optimizer + rotating_weights + rotating_gradients;
  }
};
[[nodiscard]] StateMemory state_memory(const SpaceSizes& sizes, const StateChoices& choices);
/// StateMemory::translating. The units that take turns have a copy that all ranks have gathered, and a CPU reads the
/// matrices from a packed copy of the model.
[[nodiscard]] std::int64_t translating_bytes(const SpaceSizes& sizes, Scheme scheme, std::int64_t weight_bytes,
                                             bool on_cpu);
/// For `other` instead of choices.scheme. Rotating buffers and scratch space are counted as Argosy's.
[[nodiscard]] StateMemory state_memory(const SpaceSizes& sizes, Comparison other, StateChoices choices);

/// A micro-batch of one rank. A language model has no source.
struct MicroBatch {
  double source_positions = 0, target_positions = 0;
  double source_width = 0, target_width = 0;  // of a row
};

struct ActivationChoices {
  Recompute recompute = Recompute::none;
  std::int64_t element_bytes = 2;
  std::int64_t chunk_bytes = 0;  // most bytes of logits at one time; 0: no limit
  int multiprocessors = 0;       // of the GPU; 0: a CPU
};

/// Bytes kept until the backward pass.
struct ActivationMemory {
  double blocks = 0;      // matrix inputs and the like, over all blocks that have a backward pass
  double recomputed = 0;  // of one block, while it is recomputed
  double statistics = 0;  // of attention (log-sum-exp) and norms, fp32
  double embedding = 0;   // embedding and final norm
  double logits = 0;      // and their gradient, those that exist at one time
  double whole_logits = 0;
  /// Of attention's backward pass on a GPU in the last block, beyond the logits, which are gone by then.
  double attention = 0;
  [[nodiscard]] double total() const { return blocks + recomputed + statistics + embedding + logits + attention; }
};
/// Visits before the first one that reads a trained unit have no backward pass and keep nothing.
[[nodiscard]] ActivationMemory activation_memory(const spec::ModelSpec& spec, const MicroBatch& batch,
                                                 const ActivationChoices& choices);

}  // namespace argosy::plan
