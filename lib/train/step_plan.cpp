#include "train/step_plan.hpp"

#include <algorithm>

namespace argosy::train {

std::string_view name_of(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::forward:
      return "forward";
    case OpKind::backward:
      return "backward";
    case OpKind::reduce:
      return "reduce";
    case OpKind::norm:
      return "norm";
    case OpKind::update:
      return "update";
    case OpKind::gather:
      return "gather";
  }
  return "?";
}

StepPlan plan_stage_1(const std::vector<std::size_t>& visit_units, std::size_t units, int micro_batches,
                      ReduceEvery reduce_every) {
  StepPlan plan{.ops = {}, .micro_batches = micro_batches, .reduce_every = reduce_every};
  const int visits = static_cast<int>(visit_units.size());
  const auto unit_of = [&](int visit) { return static_cast<int>(visit_units[static_cast<std::size_t>(visit)]); };
  const auto last = [&] { return static_cast<int>(plan.ops.size()) - 1; };
  std::vector<int> reduced(units, -1);
  for (int m = 0; m < micro_batches; ++m) {
    for (int v = 0; v < visits; ++v) {
      plan.ops.push_back({.kind = OpKind::forward, .visit = v, .unit = unit_of(v), .micro_batch = m});
    }
    for (int v = visits - 1; v >= 0; --v) {
      const int unit = unit_of(v);
      // Where an earlier micro-batch's gradients are still being reduced, the buffer is not free yet.
      const bool first_visit = std::find(visit_units.begin() + v + 1, visit_units.end(),
                                         visit_units[static_cast<std::size_t>(v)]) == visit_units.end();
      plan.ops.push_back({.kind = OpKind::backward,
                          .visit = v,
                          .unit = unit,
                          .micro_batch = m,
                          .buffer = unit,
                          .waits_for = first_visit ? reduced[static_cast<std::size_t>(unit)] : -1});
      const bool visited_again = std::find(visit_units.begin(), visit_units.begin() + v,
                                           visit_units[static_cast<std::size_t>(v)]) != visit_units.begin() + v;
      const bool more_to_come = m + 1 < micro_batches && reduce_every == ReduceEvery::step;
      if (more_to_come || visited_again) continue;
      plan.ops.push_back({.kind = OpKind::reduce,
                          .stream = Stream::reduce,
                          .unit = unit,
                          .micro_batch = m,
                          .buffer = unit,
                          .waits_for = last()});
      reduced[static_cast<std::size_t>(unit)] = last();
    }
  }
  // The norm needs every unit's sum; the last reduce on the stream comes after all others.
  plan.ops.push_back({.kind = OpKind::norm, .waits_for = *std::max_element(reduced.begin(), reduced.end())});
  for (std::size_t u = 0; u < units; ++u) {
    const int unit = static_cast<int>(u);
    plan.ops.push_back({.kind = OpKind::update, .unit = unit, .buffer = unit, .waits_for = reduced[u]});
    plan.ops.push_back(
        {.kind = OpKind::gather, .stream = Stream::gather, .unit = unit, .buffer = unit, .waits_for = last()});
  }
  return plan;
}

}  // namespace argosy::train
