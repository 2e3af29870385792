#pragma once

#include <vector>

#include "partition/flat_space.hpp"
#include "plan/simulation.hpp"
#include "plan/time_model.hpp"

/// What an operation of a step plan takes, for the simulation: visits as a GPU computes them, a unit's gather or
/// reduction as the time model has a pass over all of them. Pure.
namespace argosy::plan {

struct CostInputs {
  std::vector<VisitTime> visits{};  // by visit
  double update_s = 0;              // norm and update of all units
  /// nodes, ranks_per_node and links count; sizes are the units' own.
  StepInputs layout{};
  WireBytes wire{};
  comm::Reduction reduction = comm::Reduction::exact;
};

/// `spaces`: by unit; only their sizes are looked at.
[[nodiscard]] OpCost op_cost(const CostInputs& in, const std::vector<partition::FlatSpace>& spaces);

}  // namespace argosy::plan
