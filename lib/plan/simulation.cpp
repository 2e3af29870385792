#include "plan/simulation.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace argosy::plan {

namespace {

bool shares_links(const Op& a, const Op& b) {
  return a.levels == comm::Levels::both || b.levels == comm::Levels::both || a.levels == b.levels;
}

/// The operations of a stream, in order, and how much of the running one is left.
struct Lane {
  std::vector<std::size_t> ops{};
  std::size_t next = 0;
  bool runs = false;
  double left_s = 0, rate = 1;
  [[nodiscard]] std::size_t op() const { return ops[next]; }
};

}  // namespace

Replay replay_on_shared_links(const StepPlan& plan, const OpCost& cost) {
  Replay result;
  result.ops.resize(plan.ops.size());
  std::array<Lane, 3> lanes;  // by stream
  std::vector<bool> done(plan.ops.size());
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    lanes[static_cast<std::size_t>(plan.ops[i].stream)].ops.push_back(i);
  double now_s = 0;
  for (;;) {
    for (Lane& lane : lanes) {
      if (lane.runs || lane.next == lane.ops.size()) continue;
      const Op& op = plan.ops[lane.op()];
      const auto is_done = [&](int waited) { return done[static_cast<std::size_t>(waited)]; };
      if (!std::all_of(op.waits_for.begin(), op.waits_for.end(), is_done)) continue;
      lane.runs = true;
      lane.left_s = cost(op);
      result.ops[lane.op()].begin_s = now_s;
      if (op.stream == Stream::compute) result.compute_s += lane.left_s;
    }
    Lane &gather = lanes[static_cast<std::size_t>(Stream::gather)],
         &reduce = lanes[static_cast<std::size_t>(Stream::reduce)];
    const bool shared = gather.runs && reduce.runs && shares_links(plan.ops[gather.op()], plan.ops[reduce.op()]);
    gather.rate = reduce.rate = shared ? 0.5 : 1;
    const Lane* first = nullptr;
    for (const Lane& lane : lanes) {
      if (lane.runs && (first == nullptr || lane.left_s / lane.rate < first->left_s / first->rate)) first = &lane;
    }
    if (first == nullptr) break;
    const double passed_s = first->left_s / first->rate;
    now_s += passed_s;
    for (Lane& lane : lanes) {
      if (!lane.runs) continue;
      lane.left_s -= passed_s * lane.rate;
      if (&lane != first && lane.left_s > 0) continue;
      lane.runs = false;
      done[lane.op()] = true;
      result.ops[lane.op()].end_s = now_s;
      ++lane.next;
    }
  }
  result.step_s = now_s;
  return result;
}

}  // namespace argosy::plan
