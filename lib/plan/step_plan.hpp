#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "comm/traffic.hpp"
#include "partition/layout.hpp"
#include "plan/run_config.hpp"
#include "spec/model_spec.hpp"

/// The operations of one training step as data: the runner executes this list and nothing else, the simulation replays
/// it, tests check it. Pure, and the same list on every rank. The sharding scheme is nothing but which buffers exist:
/// a unit either keeps buffers of its own, or takes turns with the others in two rotating ones (ZeRO, arXiv:1910.02054;
/// hybrid shards weights and gradient sums inside a node and the optimizer's state over all ranks).
///
/// Weights are gathered where a step first needs them: the next unit's while one computes. What a rotating buffer holds
/// stays for as long as nobody else needs the buffer, so the last two units are not gathered again where forward turns
/// into backward, nor the first two where the next micro-batch begins.
namespace argosy::plan {

enum class OpKind { gather, forward, backward, reduce, norm, update };
enum class Stream { compute, gather, reduce };
[[nodiscard]] std::string_view name_of(OpKind kind) noexcept;

struct Op {
  OpKind kind = OpKind::forward;
  Stream stream = Stream::compute;
  int visit = -1;                            // forward, backward
  int unit = -1;                             // all but norm; of forward and backward the visit's own
  int micro_batch = -1;                      // forward, backward, reduce: slot on this rank
  int weights = -1, gradients = -1;          // rotating buffers read or written; -1: the unit's own, or none
  comm::Levels levels = comm::Levels::both;  // gather, reduce
  bool continues = false;                    // reduce: adds to the sums of earlier micro-batches
  std::vector<int> waits_for{};              // ops on other streams whose events this one takes
  bool operator==(const Op&) const = default;
};

/// step: gradients of all micro-batches are added up where they are computed, and reduced once; micro_batch: reduced
/// after each, in their order, as elastic sums need it.
enum class ReduceEvery { step, micro_batch };

struct StepPlan {
  std::vector<Op> ops;
  int micro_batches = 0;
  ReduceEvery reduce_every = ReduceEvery::step;
};

struct PlanShape {
  /// The units that each visit reads, its own first, in forward order.
  std::vector<std::vector<std::size_t>> visit_units;
  /// By unit: takes turns where the scheme knows turns. One that several visits read (tied, or shared by a stack), or
  /// that is larger than a block, keeps buffers of its own: gathered and reduced once a step.
  std::vector<bool> rotates;
};

[[nodiscard]] PlanShape plan_shape(const spec::ModelSpec& spec, const partition::Layout& layout);

struct PlanChoices {
  Scheme scheme = Scheme::stage_1;  // stage_1, stage_2, stage_3 or hybrid
  AccumulationOrder order = AccumulationOrder::depth_first;
  ReduceEvery reduce_every = ReduceEvery::step;
  int micro_batches = 1;
};

[[nodiscard]] constexpr bool rotates_weights(Scheme scheme) {
  return scheme == Scheme::stage_3 || scheme == Scheme::hybrid;
}
[[nodiscard]] constexpr bool rotates_gradients(Scheme scheme) {
  return scheme == Scheme::stage_2 || rotates_weights(scheme);
}
/// Which of the two rotating buffers each unit uses: in turns, in the order of their visits; -1: none.
[[nodiscard]] std::vector<int> turns_of(const PlanShape& shape);

[[nodiscard]] StepPlan plan_step(const PlanShape& shape, const PlanChoices& choices);
/// The forward pass of one micro-batch alone.
[[nodiscard]] StepPlan plan_forward(const PlanShape& shape, Scheme scheme);

}  // namespace argosy::plan
