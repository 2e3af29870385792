#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>

#include "plan/plan_lines.hpp"

namespace argosy::plan {

namespace json = boost::json;

namespace {

json::value value_of(const std::optional<double>& value) { return value ? json::value(*value) : json::value(nullptr); }

json::object json_of(const RunPlan& plan, const SchemePlan& scheme) {
  json::object object{{"weights_bytes", scheme.state.weights},
                      {"gradients_bytes", scheme.state.gradients},
                      {"optimizer_bytes", scheme.state.optimizer},
                      {"rotating_weights_bytes", scheme.state.rotating_weights},
                      {"rotating_gradients_bytes", scheme.state.rotating_gradients},
                      {"state_bytes", scheme.state.state()},
                      {"scratch_bytes", scheme.state.scratch},
                      {"total_bytes", scheme.total_bytes},
                      {"fits", scheme.fits ? json::value(*scheme.fits) : json::value(nullptr)},
                      {"sent_inner_bytes", scheme.traffic.rank_inner},
                      {"sent_outer_bytes", scheme.traffic.rank_outer},
                      {"node_bytes", scheme.traffic.node},
                      {"step_s", value_of(scheme.step_s)},
                      {"exposed_s", value_of(scheme.exposed_s)}};
  if (!scheme.step_s) return object;
  const double rate = plan.positions_per_s(*scheme.step_s), peak = plan.target.gpu->peak_flops;
  object["positions_per_s_per_gpu"] = rate;
  object["causal_flops_per_s_per_gpu"] = rate * plan.flops.causal;
  object["full_flops_per_s_per_gpu"] = rate * plan.flops.full;
  object["mfu"] = rate * plan.flops.causal / peak;
  object["mfu_full"] = rate * plan.flops.full / peak;
  return object;
}

}  // namespace

json::object json_of(const RunPlan& plan) {
  json::array rates, layouts;
  for (const auto& [at, lr] : plan.learning_rates) rates.push_back(json::array{at, lr});
  for (const LayoutPlan& row : plan.layouts) {
    layouts.push_back(json::object{{"nodes", row.nodes},
                                   {"ranks", row.ranks},
                                   {"accumulation", row.accumulation},
                                   {"idle_share", row.idle_share},
                                   {"total_bytes", row.total_bytes},
                                   {"fits", row.fits},
                                   {"step_s", row.step_s}});
  }
  json::object schemes, comparisons;
  for (const SchemePlan& scheme : plan.schemes) schemes[scheme.name] = json_of(plan, scheme);
  for (const SchemePlan& other : plan.comparisons) comparisons[other.name] = json_of(plan, other);
  const ActivationMemory& kept = plan.activations;
  const SchemePlan& chosen = plan.chosen();
  return {
      {"parameters", plan.spaces.parameters},
      {"padded_parameters", plan.spaces.all.padded},
      {"ranks", plan.target.layout.world()},
      {"nodes", plan.target.layout.nodes()},
      {"gpu", plan.target.gpu != nullptr ? json::value(plan.target.gpu->name) : json::value(nullptr)},
      {"capacity_bytes",
       plan.target.gpu != nullptr ? json::value(capacity_bytes(*plan.target.gpu)) : json::value(nullptr)},
      {"flops_per_position", {{"causal", plan.flops.causal}, {"full", plan.flops.full}, {"exact", plan.exact_flops}}},
      {"position", plan.position_name},
      {"global_size", plan.sizes.global_size},
      {"micro_size", plan.sizes.micro_size},
      {"micro_batches", plan.sizes.micro_batches},
      {"accumulation", plan.sizes.accumulation},
      {"idle_share", plan.sizes.idle_share},
      {"positions_per_step", plan.positions_per_step},
      {"steps", value_of(plan.steps)},
      {"positions_in_all", value_of(plan.positions_in_all)},
      {"learning_rates", std::move(rates)},
      {"activations",
       {{"blocks_bytes", kept.blocks},
        {"recomputed_bytes", kept.recomputed},
        {"statistics_bytes", kept.statistics},
        {"embedding_bytes", kept.embedding},
        {"logits_bytes", kept.logits},
        {"whole_logits_bytes", kept.whole_logits},
        {"total_bytes", kept.total()}}},
      {"scheme", plan.chosen().name},
      {"schemes", std::move(schemes)},
      {"comparisons", std::move(comparisons)},
      {"fits", chosen.fits ? json::value(*chosen.fits) : json::value(nullptr)},
      {"warnings", json::value_from(warnings_of(plan))},
      {"largest_micro_size", plan.largest_micro_size ? json::value(*plan.largest_micro_size) : json::value(nullptr)},
      {"cure", plan.cure.empty() ? json::value(nullptr) : json::value(plan.cure)},
      {"layouts", std::move(layouts)},
      {"run_s", chosen.step_s && plan.steps ? json::value(*chosen.step_s * *plan.steps) : json::value(nullptr)},
      {"checkpoint_bytes", plan.checkpoint_bytes},
      {"copy_bytes", plan.copy_bytes},
      {"disk_bytes", plan.disk_bytes ? json::value(*plan.disk_bytes) : json::value(nullptr)}};
}

}  // namespace argosy::plan
