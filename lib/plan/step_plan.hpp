#pragma once

#include <boost/describe.hpp>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "comm/traffic.hpp"
#include "data/dealing.hpp"
#include "partition/flat_space.hpp"
#include "plan/run_config.hpp"
#include "spec/model_spec.hpp"

/// The operations of one training step as data. The runner executes exactly this list, the simulation replays it, and
/// tests check it. Pure. Ranks that share units have their gathers and reductions in one order, that of the visits of
/// all routes, also where their micro-batches take different ones. A sharding scheme only decides
/// which buffers exist: a unit either has its own buffers or takes turns with the others in two rotating ones (ZeRO,
/// arXiv:1910.02054; hybrid shards weights and gradient sums inside a node, and the optimizer's state over all ranks).
///
/// Weights are gathered just before they are first needed: those of the next unit while one computes. A rotating buffer
/// keeps its content until another unit needs it. The last two units are therefore not gathered again between forward
/// and backward pass, nor are the first two when the next micro-batch begins.
namespace argosy::plan {

/// to_owners, to_shards: between norm and update, for units with matrices that are updated as a whole. Every rank takes
/// the matrices that it owns for this from all shards, and brings back what the update applies.
enum class OpKind { gather, forward, backward, reduce, norm, to_owners, to_shards, update };
BOOST_DESCRIBE_ENUM(OpKind, gather, forward, backward, reduce, norm, to_owners, to_shards, update)
enum class Stream { compute, gather, reduce };

struct Op {
  OpKind kind = OpKind::forward;
  Stream stream = Stream::compute;
  int visit = -1;                            // forward, backward
  int unit = -1;                             // all but norm; for forward and backward the visit's own
  std::size_t group = 0;                     // of what has a unit: the unit's component
  int micro_batch = -1;                      // forward, backward: slot on this rank; reduce: the last one that adds to
                                             // the gradient; -1: none on this rank
  int weights = -1, gradients = -1;          // rotating buffer that is read or written; -1: the unit's own, or none
  comm::Levels levels = comm::Levels::both;  // gather, reduce
  bool continues = false;                    // reduce: adds to the sums of earlier micro-batches
  std::vector<int> waits_for{};              // operations on other streams that end before this one starts
  bool operator==(const Op&) const = default;
};

/// step: the gradients of all micro-batches are added on the rank that computes them, and reduced once. micro_batch:
/// they are reduced after each micro-batch, in order, which elastic sums need.
enum class ReduceEvery { step, micro_batch };

/// The visits of a micro-batch.
struct Way {
  int first = -1;          // -1: none
  int first_trained = -1;  // with a backward pass: before it, all units are frozen
  bool operator==(const Way&) const = default;
};

struct StepPlan {
  std::vector<Op> ops;
  std::vector<Way> ways{};  // by micro-batch slot
  ReduceEvery reduce_every = ReduceEvery::step;
};

struct PlanShape {
  /// By visit, in forward order: the units that it reads, its own first.
  std::vector<std::vector<std::size_t>> visit_units;
  /// By unit: whether it uses rotating buffers if the scheme has them. A unit that several visits read (tied, or shared
  /// by a stack), or that is larger than a block, has its own buffers: it is gathered and reduced once a step.
  std::vector<bool> rotates;
  /// Units whose weights do not change. They are not reduced or updated, and gathered only if they rotate: what has its
  /// own buffers is complete from the start.
  std::set<std::size_t> frozen{};
  /// By unit, its component; empty: one, that of all ranks. Ranks that share a unit perform its collectives in one
  /// order, whatever else each of them visits: with several components, a rotating unit is gathered for each use.
  std::vector<std::size_t> components{};
  /// Units with matrices that the optimizer updates as a whole.
  std::set<std::size_t> whole{};
  /// spec::ModelSpec::routes; empty: one, through all visits.
  std::vector<std::vector<std::size_t>> routes{};
};

/// whole: PlanShape::whole.
[[nodiscard]] PlanShape plan_shape(const spec::ModelSpec& spec, const partition::Layout& layout,
                                   std::set<std::size_t> whole = {});

/// Which routes the micro-batches of one slot take.
struct SlotRoutes {
  std::optional<std::size_t> own{};  // of this rank; absent: it has none
  std::set<std::size_t> all{};       // of all ranks
  bool operator==(const SlotRoutes&) const = default;
};

/// routes: of the micro-batches of all ranks of a step, by their numbers; -1: there is none.
[[nodiscard]] std::vector<SlotRoutes> slots_of(std::span<const int> routes, const data::Dealt& dealt,
                                               int canonical_rank);

struct PlanChoices {
  Scheme scheme = Scheme::stage_1;
  AccumulationOrder order = AccumulationOrder::depth_first;
  ReduceEvery reduce_every = ReduceEvery::step;
  int micro_batches = 1;
  /// Components that no rank's micro-batch needs in this step, or that this rank does not have: nothing of them is
  /// gathered, reduced or updated.
  std::set<std::size_t> idle{};
  /// By micro-batch slot. What no rank needs in a slot is left out; for what others need, this rank gathers and reduces
  /// as they do. Empty: all ranks take the only route.
  std::vector<SlotRoutes> slots{};
};

[[nodiscard]] constexpr bool rotates_weights(Scheme scheme) {
  return scheme == Scheme::stage_3 || scheme == Scheme::hybrid;
}
[[nodiscard]] constexpr bool rotates_gradients(Scheme scheme) {
  return scheme == Scheme::stage_2 || rotates_weights(scheme);
}
/// Which of the two rotating buffers each unit uses, alternating in the order of visits; -1: none.
[[nodiscard]] std::vector<int> turns_of(const PlanShape& shape);

[[nodiscard]] StepPlan plan_step(const PlanShape& shape, const PlanChoices& choices);
/// The forward pass of one micro-batch alone, of which all ranks take the same route. idle: components that this rank
/// does not have.
[[nodiscard]] StepPlan plan_forward(const PlanShape& shape, Scheme scheme, std::size_t route = 0,
                                    std::set<std::size_t> idle = {});

}  // namespace argosy::plan
