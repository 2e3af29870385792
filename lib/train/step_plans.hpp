#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "plan/step_plan.hpp"
#include "train/run_parts.hpp"

/// What of a run differs from step to step where its model has several routes: plans, and which components a step
/// updates.
namespace argosy::train {

class StepPlans {
 public:
  /// Borrows the run.
  explicit StepPlans(const RunParts& run);
  /// The plan is valid until the next call.
  [[nodiscard]] const plan::StepPlan& of(const data::StepBatches& batches);
  /// The forward pass of one micro-batch.
  [[nodiscard]] const plan::StepPlan& forward(std::size_t route) const { return forward_[route]; }

 private:
  const RunParts& run_;
  const plan::PlanShape shape_;
  const std::set<std::size_t> absent_;  // components that this rank does not have
  std::vector<plan::StepPlan> forward_;
  std::optional<plan::StepPlan> step_;  // of the last call
};

/// The updates of a step: those of the model, and of the components that its tasks use.
class UpdateCounts {
 public:
  UpdateCounts(const spec::ModelSpec& spec, const std::vector<int>& routes)
      : spec_(spec), idle_(spec.idle_components(routes)) {}
  /// By component, the number of the update after `state`.
  [[nodiscard]] std::vector<std::int64_t> next(const RunState& state) const;
  void add(RunState& state) const;

 private:
  const spec::ModelSpec& spec_;
  const std::set<std::size_t> idle_;
};

}  // namespace argosy::train
