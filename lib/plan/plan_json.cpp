#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>

#include "plan/plan_lines.hpp"

namespace argosy::plan {

namespace json = boost::json;

namespace {

json::object json_of(const RunPlan& plan, const SchemePlan& scheme) {
  json::object object{{"weights_bytes", scheme.state.weights},
                      {"gradients_bytes", scheme.state.gradients},
                      {"optimizer_bytes", scheme.state.optimizer},
                      {"rotating_weights_bytes", scheme.state.rotating_weights},
                      {"rotating_gradients_bytes", scheme.state.rotating_gradients},
                      {"state_bytes", scheme.state.state()},
                      {"scratch_bytes", scheme.state.scratch},
                      {"translating_bytes", scheme.state.translating},
                      {"total_bytes", scheme.total_bytes},
                      {"fits", json::value_from(scheme.fits)},
                      {"sent_inner_bytes", scheme.traffic.rank_inner},
                      {"sent_outer_bytes", scheme.traffic.rank_outer},
                      {"node_bytes", scheme.traffic.node},
                      {"step_s", json::value_from(scheme.step_s)},
                      {"exposed_s", json::value_from(scheme.exposed_s)}};
  if (!scheme.step_s) return object;
  const double rate = plan.positions_per_s(*scheme.step_s), peak = plan.target.gpu->peak_flops;
  object["positions_per_s_per_gpu"] = rate;
  object["causal_flops_per_s_per_gpu"] = rate * plan.flops.causal;
  object["full_flops_per_s_per_gpu"] = rate * plan.flops.full;
  object["mfu"] = rate * plan.flops.causal / peak;
  object["mfu_full"] = rate * plan.flops.full / peak;
  return object;
}

/// Absent without a GPU.
json::value json_of(const Gpu* gpu) {
  if (gpu == nullptr) return nullptr;
  json::object rates;
  for (const NamedRate& one : rates_of(*gpu))
    rates[one.key] = {{"per_s", one.rate.per_s}, {"measured", one.rate.is_measured}};
  return rates;
}

}  // namespace

json::object json_of(const RunPlan& plan) {
  json::object schemes, comparisons;
  for (const SchemePlan& scheme : plan.schemes) schemes[scheme.name] = json_of(plan, scheme);
  for (const SchemePlan& other : plan.comparisons) comparisons[other.name] = json_of(plan, other);
  const ActivationMemory& kept = plan.activations;
  const SchemePlan& chosen = plan.chosen();
  return {
      {"parameters", plan.spaces.parameters},
      {"padded_parameters", plan.spaces.padded},
      {"trained_parameters", plan.parameters.trained},
      {"ranks", plan.target.layout.world()},
      {"nodes", plan.target.layout.nodes()},
      {"gpu", plan.target.gpu != nullptr ? json::value(plan.target.gpu->name) : json::value(nullptr)},
      {"capacity_bytes",
       plan.target.gpu != nullptr ? json::value(capacity_bytes(*plan.target.gpu)) : json::value(nullptr)},
      {"rates", json_of(plan.target.gpu)},
      {"flops_per_position", {{"causal", plan.flops.causal}, {"full", plan.flops.full}, {"exact", plan.exact_flops}}},
      {"position", plan.position_name},
      {"global_size", plan.sizes.global_size},
      {"micro_size", plan.sizes.micro_size},
      {"micro_batches", plan.sizes.micro_batches},
      {"accumulation", plan.sizes.accumulation},
      {"idle_share", plan.sizes.idle_share},
      {"placement",
       {{"routes", json::value_from(plan.target.placement.routes)},
        {"components", json::value_from(plan.target.placement.components)},
        {"others", json::value_from(plan.other_placements)},
        {"ranks", json::value_from(plan.ranks)}}},
      {"positions_per_step", plan.positions_per_step},
      {"steps", json::value_from(plan.steps)},
      {"positions_in_all", json::value_from(plan.positions_in_all)},
      {"data", json::value_from(plan.data)},
      {"learning_rates", json::value_from(plan.learning_rates)},
      {"activations",
       {{"blocks_bytes", kept.blocks},
        {"recomputed_bytes", kept.recomputed},
        {"statistics_bytes", kept.statistics},
        {"embedding_bytes", kept.embedding},
        {"logits_bytes", kept.logits},
        {"whole_logits_bytes", kept.whole_logits},
        {"attention_bytes", kept.attention},
        {"total_bytes", kept.total()}}},
      {"scheme", chosen.name},
      {"schemes", std::move(schemes)},
      {"comparisons", std::move(comparisons)},
      {"fits", json::value_from(chosen.fits)},
      {"warnings", json::value_from(warnings_of(plan))},
      {"largest_micro_size", json::value_from(plan.largest_micro_size)},
      {"largest_preset", json::value_from(plan.largest_preset)},
      {"cure", plan.cure.empty() ? json::value(nullptr) : json::value(plan.cure)},
      {"layouts", json::value_from(plan.layouts)},
      {"run_s", chosen.step_s && plan.steps ? json::value(*chosen.step_s * *plan.steps) : json::value(nullptr)},
      {"optimizer_state_bytes", plan.spaces.state.owned},
      {"adamw_state_bytes", plan.adamw_state_bytes},
      {"checkpoint_bytes", plan.checkpoint_bytes},
      {"copy_bytes", plan.copy_bytes},
      {"disk_bytes", json::value_from(plan.disk_bytes)}};
}

}  // namespace argosy::plan
