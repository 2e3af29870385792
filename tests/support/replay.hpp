#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "plan/simulation.hpp"

/// The replay of a step plan that tests compare the runner and the simulation with: each stream has links of its own.
/// Also counts the rotating buffers in use at one time.
namespace argosy::test {

using plan::Replay;

/// Where operations are computed. device: the host only issues them, far ahead, and streams wait for each other. host:
/// the host computes and waits, as the runner does, so that no operation starts before the host reaches it.
enum class Computes { device, host };

inline Replay replay(const plan::StepPlan& plan, const plan::OpCost& cost, Computes computes = Computes::device) {
  Replay result;
  std::array<double, 3> free_at{};  // by stream
  double host_s = 0;
  for (const plan::Op& op : plan.ops) {
    double& stream = free_at[static_cast<std::size_t>(op.stream)];
    double ready_s = 0;
    for (const int waited : op.waits_for)
      ready_s = std::max(ready_s, result.ops[static_cast<std::size_t>(waited)].end_s);
    if (computes == Computes::host) ready_s = host_s = std::max(host_s, ready_s);
    const double begin_s = std::max(stream, ready_s), seconds = cost(op);
    stream = begin_s + seconds;
    if (op.stream == plan::Stream::compute) {
      host_s = stream;
      result.compute_s += seconds;
    }
    result.ops.push_back({begin_s, stream});
    result.step_s = std::max(result.step_s, stream);
  }
  return result;
}

/// The most intervals that overlap; one that begins where another ends does not.
inline int most_at_once(std::vector<Replay::Interval> intervals) {
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

/// Most rotating buffers in use at one time: weights from the gather that fills them to their last reader, gradients
/// from their first writer to the end of their reduction.
struct RotatingUse {
  int weights = 0, gradients = 0;
};
inline RotatingUse rotating_use(const plan::StepPlan& plan, const Replay& replay) {
  Uses weights, gradients;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    if (op.weights >= 0 && op.kind == plan::OpKind::gather) weights.begin(op.weights, replay.ops[i]);
    if (op.weights >= 0 && op.kind != plan::OpKind::gather) weights.extend(op.weights, replay.ops[i]);
    if (op.gradients >= 0) gradients.extend(op.gradients, replay.ops[i]);
    if (op.gradients >= 0 && op.kind == plan::OpKind::reduce) gradients.close(op.gradients);
  }
  return {weights.most(), gradients.most()};
}

}  // namespace argosy::test
