#pragma once

#include <functional>
#include <vector>

#include "plan/step_plan.hpp"

/// Replays a step plan on a virtual clock. Each stream runs its operations in order, and an operation waits for those
/// it names. Gives the time of every operation, and how much longer the step takes than computing alone. Pure.
namespace argosy::plan {

/// Seconds of an operation that runs alone.
using OpCost = std::function<double(const Op&)>;

struct Replay {
  struct Interval {
    double begin_s = 0, end_s = 0;
  };
  std::vector<Interval> ops;  // by operation of the plan
  double step_s = 0;          // until all operations have ended
  double compute_s = 0;       // of the compute stream's operations
  /// How much longer the step takes than computing alone.
  [[nodiscard]] double exposed_s() const { return step_s - compute_s; }
};
/// Gathers and reductions share the links: while one of each runs, both take twice as long, unless one is inside the
/// nodes and the other between them.
[[nodiscard]] Replay replay_on_shared_links(const StepPlan& plan, const OpCost& cost);

}  // namespace argosy::plan
