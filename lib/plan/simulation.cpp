#include "plan/simulation.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace argosy::plan {

namespace {
constexpr std::size_t streams = 3;
}  // namespace

Replay replay(const StepPlan& plan, const OpCost& cost, Computes computes) {
  Replay result;
  std::array<double, streams> free_at{};  // by stream
  double host_s = 0;
  for (const Op& op : plan.ops) {
    double& stream = free_at[static_cast<std::size_t>(op.stream)];
    double ready_s = 0;
    for (const int waited : op.waits_for)
      ready_s = std::max(ready_s, result.ops[static_cast<std::size_t>(waited)].end_s);
    if (computes == Computes::host) ready_s = host_s = std::max(host_s, ready_s);
    const double begin_s = std::max(stream, ready_s), seconds = cost(op);
    stream = begin_s + seconds;
    if (op.stream == Stream::compute) {
      host_s = stream;
      result.compute_s += seconds;
    }
    result.ops.push_back({begin_s, stream});
    result.step_s = std::max(result.step_s, stream);
  }
  return result;
}

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
  std::array<Lane, streams> lanes;
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

namespace {

/// The most intervals that overlap; one that begins where another ends does not.
int most_at_once(std::vector<Replay::Interval> intervals) {
  std::vector<std::pair<double, int>> changes;
  for (const Replay::Interval& each : intervals) {
    changes.emplace_back(each.begin_s, 1);
    changes.emplace_back(each.end_s, -1);
  }
  std::sort(changes.begin(), changes.end());
  int now = 0, most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, now += change);
  return most;
}

/// Times in which something is held, from the operation that begins it to the last that needs it.
class Uses {
 public:
  void begin(int buffer, const Replay::Interval& by) {
    close(buffer);
    open_[buffer] = by;
  }
  void extend(int buffer, const Replay::Interval& by) {
    const auto [found, is_new] = open_.try_emplace(buffer, by);
    found->second.end_s = std::max(found->second.end_s, by.end_s);
  }
  void close(int buffer) {
    if (const auto found = open_.find(buffer); found != open_.end()) {
      done_.push_back(found->second);
      open_.erase(found);
    }
  }
  [[nodiscard]] int most() {
    while (!open_.empty()) close(open_.begin()->first);
    return most_at_once(done_);
  }

 private:
  std::map<int, Replay::Interval> open_;  // by buffer
  std::vector<Replay::Interval> done_;
};

}  // namespace

RotatingUse rotating_use(const StepPlan& plan, const Replay& replay) {
  Uses weights, gradients;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.weights >= 0 && op.kind == OpKind::gather) weights.begin(op.weights, replay.ops[i]);
    if (op.weights >= 0 && op.kind != OpKind::gather) weights.extend(op.weights, replay.ops[i]);
    if (op.gradients >= 0) gradients.extend(op.gradients, replay.ops[i]);
    if (op.gradients >= 0 && op.kind == OpKind::reduce) gradients.close(op.gradients);
  }
  return {weights.most(), gradients.most()};
}

}  // namespace argosy::plan
