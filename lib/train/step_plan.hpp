#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

/// The operations of one training step as data: the runner executes this list and nothing else, tests and planners read
/// it. Pure. ZeRO stage 1: every unit's weights and gradients stay; a unit is reduced once, behind its last backward
/// visit of the last micro-batch, while earlier units still compute; after the update its weights are gathered in
/// forward order.
namespace argosy::train {

enum class OpKind { forward, backward, reduce, norm, update, gather };
enum class Stream { compute, gather, reduce };
[[nodiscard]] std::string_view name_of(OpKind kind) noexcept;

struct Op {
  OpKind kind = OpKind::forward;
  Stream stream = Stream::compute;
  int visit = -1;        // forward, backward
  int unit = -1;         // all but norm
  int micro_batch = -1;  // forward, backward, reduce: slot on this rank
  int buffer = -1;       // gradient buffer written (backward) or read (reduce, update); weight buffer (gather)
  int waits_for = -1;    // index of the op on another stream whose event this one takes
  bool operator==(const Op&) const = default;
};

enum class ReduceEvery { step, micro_batch };

struct StepPlan {
  std::vector<Op> ops;
  int micro_batches = 0;
  ReduceEvery reduce_every = ReduceEvery::step;
};

/// visit_units: the unit of each visit, in forward order. The same list on every rank. With ReduceEvery::micro_batch
/// the sum of a unit goes on from micro-batch to micro-batch, and its gradients begin anew in each.
[[nodiscard]] StepPlan plan_stage_1(const std::vector<std::size_t>& visit_units, std::size_t units, int micro_batches,
                                    ReduceEvery reduce_every = ReduceEvery::step);

}  // namespace argosy::train
