#pragma once

#include <cstdint>

#include "plan/memory_model.hpp"

/// Payload of one optimizer step by sharding scheme: how often each half of the two-level collectives runs, times what
/// one pass over all units sends (comm/traffic.hpp counts the same). Bytes of gradients and weights only: counts, norms
/// and messages' envelopes are apart. Pure.
namespace argosy::plan {

/// Passes over all units in a step, by operation and level.
struct Passes {
  std::int64_t inner_reduces = 0, outer_reduces = 0;  // of gradients
  std::int64_t inner_gathers = 0, outer_gathers = 0;  // of weights
  std::int64_t inner_gradient_gathers = 0, outer_gradient_gathers = 0;
};
/// accumulation: micro-batches of a rank. Breadth-first runs all of them through a unit before the next, so stages 2,
/// 3, hybrid and hsdp move as much as with one. hybrid gathers once inside the node behind the update, and for each
/// forward and backward. Elastic sums reduce every micro-batch.
[[nodiscard]] Passes passes_of(Scheme scheme, std::int64_t accumulation, AccumulationOrder order,
                               comm::Reduction reduction = comm::Reduction::exact);

struct WireBytes {
  std::int64_t weight = 2, inner_gradient = 4, outer_gradient = 4;  // of an element
};

struct StepTraffic {
  std::int64_t rank_inner = 0, rank_outer = 0;  // of the rank that sends most in all: inside its node, out of it
  std::int64_t node = 0;                        // leaves the node that sends most
  /// The same where one flat ring of contiguous ranks carries what runs over the whole world.
  std::int64_t node_flat = 0;
  [[nodiscard]] std::int64_t rank() const { return rank_inner + rank_outer; }
};
/// Elastic reductions send every rank's whole gradient: as many bytes out of a node as it has ranks times the others'
/// share, in fp32.
[[nodiscard]] StepTraffic step_traffic(const SpaceSizes& sizes, const Passes& passes, const WireBytes& wire,
                                       comm::Reduction reduction = comm::Reduction::exact);

}  // namespace argosy::plan
