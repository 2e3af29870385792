#pragma once

#include <functional>
#include <vector>

#include "plan/step_plan.hpp"

/// Replays a step plan on a virtual clock. Each stream runs its operations in order, and an operation waits for those
/// it names. Gives the time of every operation, how much longer the step takes than computing alone, and how many
/// rotating buffers are in use at one time. Pure.
namespace argosy::plan {

/// Seconds of an operation that runs alone.
using OpCost = std::function<double(const Op&)>;

/// Where operations are computed. device: the host only issues them, far ahead, and streams wait for each other. host:
/// the host computes and waits, as the runner does, so that no operation starts before the host reaches it.
enum class Computes { device, host };

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
[[nodiscard]] Replay replay(const StepPlan& plan, const OpCost& cost, Computes computes = Computes::device);
/// The same for a device on which gathers and reductions share the links: while one of each runs, both take twice as
/// long, unless one is inside the nodes and the other between them.
[[nodiscard]] Replay replay_on_shared_links(const StepPlan& plan, const OpCost& cost);

/// Most rotating buffers in use at one time: weights from the gather that fills them to their last reader, gradients
/// from their first writer to the end of their reduction.
struct RotatingUse {
  int weights = 0, gradients = 0;
};
[[nodiscard]] RotatingUse rotating_use(const StepPlan& plan, const Replay& replay);

}  // namespace argosy::plan
