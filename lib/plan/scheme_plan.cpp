#include "plan/scheme_plan.hpp"

#include <algorithm>

#include "optim/optim_config.hpp"

namespace argosy::plan {

namespace {

std::int64_t element_bytes(const RunConfig& config) { return config.precision.mode == PrecisionMode::fp32 ? 4 : 2; }

std::int64_t wire_bytes(WireType type) { return type == WireType::bf16 ? 2 : 4; }

WireBytes wire_of(const RunConfig& config) {
  return {.weight = element_bytes(config),
          .inner_gradient = wire_bytes(config.precision.gradient_wire.inner),
          .outer_gradient = wire_bytes(config.precision.gradient_wire.outer)};
}

StateChoices state_choices(const RunConfig& config) {
  const auto [weight, inner, outer] = wire_of(config);
  return {.weight_bytes = weight,
          .master_bytes = has_wide_master(config) ? 4 : 2,
          .inner_wire_bytes = inner,
          .outer_wire_bytes = outer,
          .reduction = config.sharding.reduction};
}

/// Without the update, which depends on the scheme.
CostInputs costs_of(const RunConfig& config, const spec::ModelSpec& spec, const MicroBatch& batch,
                    const PlanTarget& target) {
  CostInputs costs{.nodes = target.layout.nodes(),
                   .ranks_per_node = target.layout.slots(),
                   .wire = wire_of(config),
                   .reduction = config.sharding.reduction};
  costs.links.inner_bytes_per_s = target.gpu->inner_bytes_per_s;
  costs.links.outer_bytes_per_s =
      target.node_bytes_per_s.value_or(target.gpu->outer_bytes_per_s * target.layout.slots());
  costs.visits = visit_times(spec, batch, config.sharding.recompute, element_bytes(config), *target.gpu);
  if (!target.gpu_positions_per_s) return costs;
  double together_s = 0;
  for (const VisitTime& visit : costs.visits) together_s += visit.forward_s + visit.backward_s;
  const double measured_s = (batch.source_positions + batch.target_positions) / *target.gpu_positions_per_s;
  for (VisitTime& visit : costs.visits) {  // a measured rate keeps the shares
    visit.forward_s *= measured_s / together_s;
    visit.backward_s *= measured_s / together_s;
  }
  return costs;
}

}  // namespace

MicroBatch micro_batch_of(const RunConfig& config, std::int64_t micro_size) {
  const bool examples = config.batch.unit == data::BatchUnit::examples;
  const auto size = static_cast<double>(micro_size);
  if (is_language_model(config)) {
    const auto width = static_cast<double>(config.batch.sequence_length);
    return {.target_positions = examples ? size * width : size, .target_width = width};
  }
  constexpr auto width = static_cast<double>(assumed_sentence);
  const double side = examples ? size * width : size / 2;
  return {.source_positions = side, .target_positions = side, .source_width = width, .target_width = width};
}

ActivationMemory activations_of(const RunConfig& config, const spec::ModelSpec& spec, const MicroBatch& batch,
                                const Gpu* gpu) {
  return activation_memory(spec, batch,
                           {.recompute = config.sharding.recompute,
                            .element_bytes = element_bytes(config),
                            .chunk_bytes = config.loss.chunk_bytes,
                            .multiprocessors = gpu != nullptr ? gpu->multiprocessors : 0});
}

SchemePlanner::SchemePlanner(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target)
    : config_(config),
      spec_(spec),
      target_(target),
      sizes_(data::resolve_sizes(config.batch, target.layout.world())),
      batch_(micro_batch_of(config, sizes_.micro_size)),
      units_(plan_shape(spec, target.layout, optim::whole_units(config.optimizer, spec))),
      sizes_of_spaces_(space_sizes(spec, target.layout, optim::state_of(config.optimizer))),
      activations_(activations_of(config, spec, batch_, target.gpu)),
      state_(state_choices(config)) {
  for (const spec::Unit& unit : spec.units) spaces_.emplace_back(unit.flat(), target.layout);
  costs_.wire = wire_of(config);
  if (target.gpu != nullptr) costs_ = costs_of(config, spec, batch_, target);
  costs_.frozen = units_.frozen;
}

SchemePlan SchemePlanner::with_memory(std::string name, const StateMemory& state) const {
  SchemePlan plan{.name = std::move(name), .state = state};
  plan.total_bytes =
      state.state() + std::max(state.scratch + static_cast<std::int64_t>(activations_.total()), state.translating);
  if (target_.gpu != nullptr) plan.fits = plan.total_bytes <= capacity_bytes(*target_.gpu);
  return plan;
}

void SchemePlanner::forecast(SchemePlan& plan, Scheme scheme, std::optional<Comparison> other) const {
  const Reduction reduction = config_.sharding.reduction;
  PlanChoices choices{.scheme = scheme,
                      .order = config_.sharding.accumulation_order,
                      .reduce_every = reduction == Reduction::elastic ? ReduceEvery::micro_batch : ReduceEvery::step,
                      .micro_batches = sizes_.accumulation};
  // Of several routes, a rank computes one at a time, and some rank each of the others: the most that a step can send.
  for (std::size_t routes = units_.routes.size(), m = 0;
       routes > 1 && m < static_cast<std::size_t>(sizes_.accumulation); ++m) {
    SlotRoutes& slot = choices.slots.emplace_back(SlotRoutes{.own = m % routes});
    for (std::size_t route = 0; route < routes; ++route) slot.all.insert(route);
  }
  const StepPlan steps = plan_step(units_, choices);
  plan.traffic = planned_traffic(steps, spaces_, costs_.wire, reduction, other);
  if (target_.gpu == nullptr) return;
  CostInputs costs = costs_;
  costs.other = other;
  if (!target_.gpu_positions_per_s) {  // a measured rate of a GPU has the update in it
    const auto share_of = [&](const Part& part) {
      return !other ? part.owned : *other == Comparison::ddp ? part.padded : part.held;
    };
    costs.update = optimizer_time({.elements = share_of(sizes_of_spaces_.trained()),
                                   .state_bytes = share_of(sizes_of_spaces_.state),
                                   .master_bytes = state_.master_bytes,
                                   .weight_bytes = state_.weight_bytes,
                                   .ema = config_.optimizer.ema > 0},
                                  *target_.gpu);
    const int ranks = !other                      ? target_.layout.world()
                      : *other == Comparison::ddp ? 1  // each of which computes all matrices
                                                  : target_.layout.slots();
    for (std::size_t u = 0; u < spec_.units.size(); ++u) {
      const bool is_whole = units_.whole.contains(u);
      costs.matrices_s.push_back(is_whole ? muon_time(spec_.units[u], u, ranks, element_bytes(config_), *target_.gpu)
                                          : 0);
    }
  }
  const Replay replayed = replay_on_shared_links(steps, op_cost(costs, spaces_));
  plan.step_s = replayed.step_s;
  plan.exposed_s = replayed.exposed_s();
}

SchemePlan SchemePlanner::memory(Scheme scheme) const {
  StateChoices choices = state_;
  choices.scheme = scheme;
  StateMemory state = state_memory(sizes_of_spaces_, choices);
  if (translated_lines_of(config_.validation).any())
    state.translating = translating_bytes(sizes_of_spaces_, scheme, state_.weight_bytes, target_.gpu == nullptr);
  return with_memory(boost::describe::enum_to_string(scheme, ""), state);
}

SchemePlan SchemePlanner::plan(Scheme scheme) const {
  SchemePlan plan = memory(scheme);
  forecast(plan, scheme, {});
  return plan;
}

SchemePlan SchemePlanner::plan(Comparison other) const {
  SchemePlan plan =
      with_memory(boost::describe::enum_to_string(other, ""), state_memory(sizes_of_spaces_, other, state_));
  forecast(plan, like(other), other);
  return plan;
}

}  // namespace argosy::plan
