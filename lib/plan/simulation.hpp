#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "partition/flat_space.hpp"
#include "plan/step_plan.hpp"
#include "plan/traffic_model.hpp"

/// Replays a step plan on a virtual clock: one time line a stream, each in order, operations wait for those they name.
/// Says when every operation runs, what of the communication is left over beside computing, which rotating buffers hold
/// something at one time, and what the plan's collectives send. Pure.
namespace argosy::plan {

/// Seconds of an operation by itself.
using OpCost = std::function<double(const Op&)>;

/// Who computes. device: the host only issues, far ahead, and streams wait for each other. host: the host computes and
/// waits itself, as the runner does, so no operation starts before the host has come to it.
enum class Computes { device, host };

struct Replay {
  struct Interval {
    double begin_s = 0, end_s = 0;
  };
  std::vector<Interval> ops;  // by operation of the plan
  double step_s = 0;          // until all have ended
  double compute_s = 0;       // of the compute stream's operations
  /// What the step takes longer than computing alone.
  [[nodiscard]] double exposed_s() const { return step_s - compute_s; }
};
[[nodiscard]] Replay replay(const StepPlan& plan, const OpCost& cost, Computes computes = Computes::device);
/// The same for a device whose gathers and reductions share the links: while one of each runs, both take twice as long,
/// unless one stays inside the nodes and the other between them.
[[nodiscard]] Replay replay_on_shared_links(const StepPlan& plan, const OpCost& cost);

/// Most rotating buffers in use at one time: weights from the gather that fills them to their last reader, gradients
/// from their first writer to the end of their reduction.
struct RotatingUse {
  int weights = 0, gradients = 0;
};
[[nodiscard]] RotatingUse rotating_use(const StepPlan& plan, const Replay& replay);

/// What the plan's gathers and reductions send; spaces: by unit. On a world of one: nothing.
[[nodiscard]] StepTraffic planned_traffic(const StepPlan& plan, std::span<const partition::FlatSpace> spaces,
                                          const WireBytes& wire, comm::Reduction reduction);

}  // namespace argosy::plan
