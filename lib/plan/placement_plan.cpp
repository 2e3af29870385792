#include "plan/placement_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "optim/optim_config.hpp"
#include "plan/data_plan.hpp"
#include "plan/sharing.hpp"
#include "plan/time_model.hpp"

namespace argosy::plan {
namespace {

/// One rank of a node with CPUs, of which only proportions count: products, memory, and links inside and between nodes.
const Gpu& some_cpu() {
  static const Gpu cpu{.name = "",
                       .driver_name = "",
                       .gemm_flops = 1e11,
                       .attention_forward_flops = 2e10,
                       .attention_backward_flops = 2e10,
                       .memory_bytes_per_s = 2e10,
                       .inner_bytes_per_s = 4e9,
                       .outer_bytes_per_s = 1e9,
                       .fp32_flops = 5e10};
  return cpu;
}

}  // namespace

std::vector<double> shares_of_routes(const RunConfig& config, const spec::ModelSpec& spec,
                                     const data::ShardIndex* shards) {
  const std::vector<data::CorpusConfig>& corpora = config.data.corpora;
  const std::vector<std::uint32_t> routes = routes_of(config, spec);
  std::vector<double> shares(spec.routes.size());
  if (routes.empty()) return std::vector<double>(shares.size(), 1);
  std::optional<DataPlan> counted;
  if (shards != nullptr) counted = plan_data(config, {.global_size = 1}, *shards);
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    const auto in_both = [](const CorpusPlan& corpus) {  // ids of an example, on average
      return corpus.examples > 0 ? (corpus.src_tokens + corpus.tgt_tokens) / corpus.examples : 0;
    };
    shares[routes[c]] += counted ? counted->corpora[c].share * in_both(counted->corpora[c]) : corpora[c].weight;
  }
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share = all > 0 ? share / all : 1 / static_cast<double>(shares.size());
  return shares;
}

PlacementCosts placement_costs(const RunConfig& config, const spec::ModelSpec& spec, const PlanTarget& target,
                               const std::vector<double>& shares) {
  const Gpu& machine = target.gpu != nullptr ? *target.gpu : some_cpu();
  const std::int64_t element = config.precision.mode == PrecisionMode::fp32 ? 4 : 2;
  const std::int64_t global_size = config.batch.global_size
                                       ? *config.batch.global_size
                                       : data::resolve_sizes(config.batch, target.layout.world()).global_size;
  const std::vector<VisitTime> visits =
      visit_times(spec, micro_batch_of(config, global_size), config.sharding.recompute, element, machine);
  PlacementCosts costs;
  for (std::size_t route = 0; route < spec.routes.size(); ++route) {
    double seconds = 0;
    for (const std::size_t visit : spec.routes[route]) seconds += visits[visit].forward_s + visits[visit].backward_s;
    costs.routes.push_back(shares[route] * seconds);
  }
  costs.shares = shares;
  costs.in_order = config.sharding.reduction == Reduction::elastic;
  if (!config.batch.micro_size.is_auto)
    costs.micro_batches = data::resolve_sizes(config.batch, target.layout.world()).micro_batches;
  if (const auto memory = target.rank_bytes       ? target.rank_bytes
                          : target.gpu != nullptr ? std::optional(capacity_bytes(*target.gpu))
                                                  : std::nullopt) {
    const double activations =
        config.batch.micro_size.is_auto
            ? 0
            : activations_of(config, spec, micro_batch_of(config, config.batch.micro_size.value()), target.gpu).total();
    costs.capacity_bytes = std::max<std::int64_t>(1, *memory - static_cast<std::int64_t>(activations));
  }
  const std::size_t components = spec.components.size();
  costs.bytes.resize(components);
  costs.shared_bytes.resize(components);
  std::vector<double> moved(components);  // weights and gradients
  const spec::StateOf state = optim::state_of(config.optimizer);
  const Scheme scheme = scheme_of(config.sharding);
  for (const spec::Unit& unit : spec.units) {
    std::int64_t elements = 0, kept = 0;
    for (const partition::ParamSpec& parameter : unit.flat()) elements += parameter.numel();
    for (const spec::StateTensor& tensor : unit.kept(state))
      if (tensor.is_flat()) kept += elements / tensor.block * static_cast<std::int64_t>(size_of(tensor.dtype));
    const std::int64_t gradients = unit.frozen ? 0 : 4 * elements, weights = element * elements;
    const std::int64_t divided =
        kept + (scheme == Scheme::stage_1 ? 0 : gradients) + (rotates_weights(scheme) ? weights : 0);
    costs.bytes[unit.component] += weights + gradients + kept;
    costs.shared_bytes[unit.component] += divided;
    moved[unit.component] += static_cast<double>(weights + gradients);
  }
  for (const double bytes : moved) {
    costs.inner_s.push_back(bytes / machine.inner_bytes_per_s);
    costs.outer_s.push_back(bytes /
                            target.node_bytes_per_s.value_or(machine.outer_bytes_per_s * target.layout.slots()));
  }
  return costs;
}

std::vector<OtherPlacement> other_placements(const RunConfig& config, const spec::ModelSpec& spec,
                                             const PlanTarget& target, int micro_batches) {
  const int world = target.layout.world();
  PlacementCosts costs = placement_costs(config, spec, target, target.route_shares);
  costs.micro_batches = micro_batches;
  struct Scored {
    PlacementScore score;
    double idle_share;
  };
  const auto score = [&](const Placement& placement) {
    const double slots = std::ceil(static_cast<double>(micro_batches) / world);
    const double idle =
        placement.is_everywhere()
            ? 1 - micro_batches / (slots * world)
            : typical_step(placement, target.route_shares, micro_batches, world, costs.in_order).idle_share;
    return Scored{score_of(placement, spec, costs, target.layout), idle};
  };
  const Scored chosen = score(target.placement);
  std::vector<OtherPlacement> others;
  for (const auto& [name, placement] :
       {std::pair{"everywhere", Placement{}}, {"round robin", round_robin(spec, world)}}) {
    const Scored other = score(placement);
    others.push_back({name, other.score.step_s / chosen.score.step_s,
                      static_cast<double>(other.score.most_bytes) / static_cast<double>(chosen.score.most_bytes),
                      other.idle_share});
  }
  return others;
}

PlanTarget placed(PlanTarget target, const RunConfig& config, const spec::ModelSpec& spec,
                  const data::ShardIndex* shards) {
  target.placement = {};
  if (config.placement.is_everywhere() || spec.routes.size() == 1) return target;
  target.route_shares = shares_of_routes(config, spec, shards);
  target.placement =
      config.placement.is_auto
          ? search_placement(spec, placement_costs(config, spec, target, target.route_shares), target.layout)
          : placement_of(spec, config.placement, target.layout.world());
  if (const int groups = target.placement.most_groups_of_a_rank(); groups > most_groups)
    throw_error(Fault::config, "placement",
                fmt::format("at most {} sets of ranks that share components with one rank", most_groups),
                std::to_string(groups),
                "let more tasks share a stack, or place tasks that share stacks on the same ranks");
  return target;
}

}  // namespace argosy::plan
