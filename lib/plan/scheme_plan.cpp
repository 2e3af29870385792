#include "plan/scheme_plan.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.hpp"
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

/// By rank, of how many slots of each component it owns the slices; where all ranks have all, of the first alone.
std::vector<std::vector<std::int64_t>> slots_by_rank(const spec::ModelSpec& spec, const Placement& placement,
                                                     const partition::Layout& layout) {
  std::vector<std::vector<std::int64_t>> slots(static_cast<std::size_t>(layout.world()));
  for (std::size_t c = 0; c < (placement.is_everywhere() ? 1 : spec.components.size()); ++c) {
    const partition::Layout shared = placement.layout_of(c, layout);
    const bool even = shared.nodes() * shared.slots() == shared.world();
    for (int rank = 0; rank < layout.world(); ++rank) {
      const int member = placement.rank_in(c, rank);
      slots[static_cast<std::size_t>(rank)].push_back(member < 0 ? 0 : even ? 1 : std::ssize(shared.slots_of(member)));
    }
  }
  return slots;
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
      activations_(activations_of(config, spec, batch_, target.gpu)),
      state_(state_choices(config)) {
  const Placement& placement = target_.placement;
  for (const spec::Unit& unit : spec.units)
    spaces_.emplace_back(unit.flat(), placement.layout_of(unit.component, target.layout));
  const spec::StateOf state = optim::state_of(config.optimizer);
  kept_ = kept_bytes(spec, target.layout, state, placement);
  std::map<std::vector<std::int64_t>, std::size_t> known;  // by slots
  const std::vector<std::vector<std::int64_t>> slots = slots_by_rank(spec, placement, target.layout);
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    const auto [found, is_new] = known.emplace(slots[rank], unlike_.size());
    alike_.push_back(found->second);
    if (is_new) unlike_.push_back({narrow<int>(rank), {}});
    int& most = unlike_[found->second].rank;
    if (kept_[rank] > kept_[static_cast<std::size_t>(most)]) most = narrow<int>(rank);
  }
  for (Holder& holder : unlike_) holder.sizes = space_sizes(spec, target.layout, state, placement, holder.rank);
  for (std::size_t i = 1; i < unlike_.size(); ++i)
    if (copied_bytes(unlike_[i].sizes) > copied_bytes(spaces())) fullest_ = i;
  if (!placement.is_everywhere()) {
    const TypicalStep step = typical_step(placement, target.route_shares, sizes_.micro_batches, target.layout.world(),
                                          config.sharding.reduction == Reduction::elastic);
    sizes_.idle_share = step.idle_share;
    idle_shares_ = step.idle_shares;
    sizes_.accumulation = step.slots;
  }
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

PlanChoices SchemePlanner::choices_of(Scheme scheme, int canonical_rank) const {
  const bool elastic = config_.sharding.reduction == Reduction::elastic;
  PlanChoices choices{.scheme = scheme,
                      .order = config_.sharding.accumulation_order,
                      .reduce_every = elastic ? ReduceEvery::micro_batch : ReduceEvery::step,
                      .micro_batches = sizes_.accumulation,
                      .idle = target_.placement.absent(canonical_rank)};
  if (units_.routes.size() == 1) return choices;
  // A rank computes one of its routes at a time, and some rank each of the others: the most that a step can send.
  std::vector<std::size_t> own;
  SlotRoutes slot;
  for (std::size_t route = 0; route < units_.routes.size(); ++route) {
    slot.all.insert(route);
    if (target_.placement.is_everywhere() ||
        std::ranges::binary_search(target_.placement.routes[route], canonical_rank))
      own.push_back(route);
  }
  for (std::size_t m = 0; m < static_cast<std::size_t>(sizes_.accumulation); ++m) {
    slot.own = own[m % own.size()];
    choices.slots.push_back(slot);
  }
  return choices;
}

std::vector<comm::Traffic::Bytes> SchemePlanner::sent_by_rank(Scheme scheme, std::optional<Comparison> other) const {
  const Placement& placement = target_.placement;
  std::map<std::set<std::size_t>, StepPlan> plans;  // by the components that a rank does not have
  for (const auto& [rank, sizes] : unlike_)
    if (const std::set<std::size_t> absent = placement.absent(rank); !plans.contains(absent))
      plans.emplace(absent, plan_step(units_, choices_of(scheme, rank)));
  std::vector<comm::Traffic::Bytes> by_rank;
  by_rank.reserve(static_cast<std::size_t>(target_.layout.world()));
  for (int rank = 0; rank < target_.layout.world(); ++rank)
    by_rank.push_back(sent_bytes(plans.at(placement.absent(rank)), spaces_, costs_.wire, config_.sharding.reduction,
                                 other, [&](std::size_t component) { return placement.rank_in(component, rank); }));
  return by_rank;
}

std::vector<RankPlan> SchemePlanner::ranks(Scheme scheme) const {
  const Placement& placement = target_.placement;
  std::vector<RankPlan> ranks;
  if (placement.is_everywhere()) return ranks;
  const std::vector<std::int64_t> state = state_bytes(scheme);
  for (const comm::Traffic::Bytes& sent : sent_by_rank(scheme, {})) {
    const auto rank = narrow<int>(std::ssize(ranks));
    ranks.push_back({.state_bytes = state[ranks.size()],
                     .sent_inner_bytes = sent.inner,
                     .sent_outer_bytes = sent.outer,
                     .idle_share = idle_shares_[ranks.size()]});
    for (const auto& [task, route] : spec_.route_of)
      if (std::ranges::binary_search(placement.routes[route], rank)) ranks.back().tasks.push_back(task);
  }
  return ranks;
}

std::vector<std::int64_t> SchemePlanner::state_bytes(Scheme scheme) const {
  StateChoices choices = state_;
  choices.scheme = scheme;
  std::vector<std::int64_t> unkept, bytes;
  for (const Holder& holder : unlike_)
    unkept.push_back(state_memory(holder.sizes, choices).state() - holder.sizes.state.owned);
  for (std::size_t rank = 0; rank < alike_.size(); ++rank) bytes.push_back(unkept[alike_[rank]] + kept_[rank]);
  return bytes;
}

void SchemePlanner::forecast(SchemePlan& plan, Scheme scheme, std::optional<Comparison> other) const {
  const Reduction reduction = config_.sharding.reduction;
  const Placement& placement = target_.placement;
  const StepPlan steps = plan_step(units_, choices_of(scheme, fullest_rank()));
  if (placement.is_everywhere()) {
    plan.traffic = planned_traffic(steps, spaces_, costs_.wire, reduction, other);
  } else {
    plan.traffic = traffic_of(target_.layout, sent_by_rank(scheme, other));
  }
  if (target_.gpu == nullptr) return;
  CostInputs costs = costs_;
  costs.other = other;
  for (std::size_t c = 0; !placement.is_everywhere() && c < spec_.components.size(); ++c) {
    const partition::Layout group = placement.layout_of(c, target_.layout);
    costs.groups.emplace_back(group.nodes(), group.slots());
  }
  if (!target_.gpu_positions_per_s) {  // a measured rate of a GPU has the update in it
    const auto share_of = [&](const Part& part) {
      return !other ? part.owned : *other == Comparison::ddp ? part.padded : part.held;
    };
    costs.update = optimizer_time({.elements = share_of(spaces().trained()),
                                   .state_bytes = share_of(spaces().state),
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
  StateMemory state;  // of the rank where it is most
  for (const auto& [rank, sizes] : unlike_) {
    StateMemory own = state_memory(sizes, choices);
    if (translated_lines_of(config_.validation).any())
      own.translating = translating_bytes(sizes, scheme, state_.weight_bytes, target_.gpu == nullptr);
    if (own.state() > state.state()) state = own;
  }
  return with_memory(boost::describe::enum_to_string(scheme, ""), state);
}

SchemePlan SchemePlanner::plan(Scheme scheme) const {
  SchemePlan plan = memory(scheme);
  forecast(plan, scheme, {});
  return plan;
}

SchemePlan SchemePlanner::plan(Comparison other) const {
  SchemePlan plan = with_memory(boost::describe::enum_to_string(other, ""), state_memory(spaces(), other, state_));
  forecast(plan, like(other), other);
  return plan;
}

}  // namespace argosy::plan
