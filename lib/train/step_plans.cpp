#include "train/step_plans.hpp"

#include "optim/optim_config.hpp"

namespace argosy::train {

StepPlans::StepPlans(const RunParts& run)
    : run_(run),
      shape_(plan::plan_shape(run.model->spec(), run.context.topology.layout(),
                              optim::whole_units(run.config.optimizer, run.model->spec()))),
      absent_(run.placement.absent(run.context.topology.canonical_rank())) {
  for (std::size_t route = 0; route < shape_.routes.size(); ++route)
    forward_.push_back(plan::plan_forward(shape_, run.choices.scheme, route, absent_));
}

const plan::StepPlan& StepPlans::of(const data::StepBatches& batches) {
  if (step_ && shape_.routes.size() == 1) return *step_;
  plan::PlanChoices choices = run_.choices;
  if (shape_.routes.size() > 1) {
    choices.slots = plan::slots_of(batches.routes, batches.dealt, run_.context.topology.canonical_rank());
    choices.micro_batches = narrow<int>(std::ssize(choices.slots));
    choices.idle = absent_;
  }
  return step_.emplace(plan::plan_step(shape_, choices));
}

std::vector<std::int64_t> UpdateCounts::next(const RunState& state) const {
  std::vector<std::int64_t> updates{state.updates + 1};
  for (std::size_t c = 1; c < spec_.components.size(); ++c) {
    const auto known = state.component_updates.find(spec_.components[c].name);
    updates.push_back(known == state.component_updates.end() ? 1 : known->second + 1);
  }
  return updates;
}

void UpdateCounts::add(RunState& state) const {
  ++state.updates;
  for (std::size_t c = 1; c < spec_.components.size(); ++c)
    if (!idle_.contains(c)) ++state.component_updates[spec_.components[c].name];
}

}  // namespace argosy::train
