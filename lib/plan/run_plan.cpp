#include "plan/run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.hpp"
#include "partition/flat_space.hpp"
#include "plan/op_cost.hpp"
#include "plan/simulation.hpp"
#include "plan/step_plan.hpp"
#include "spec/model_spec.hpp"

namespace argosy::plan {

namespace {

constexpr std::int64_t kStoredAlignment = 1 << 20;  // of a dataset in a shard file (lib/checkpoint/FORMAT.md)
constexpr int kMostNodes = 1024;

std::int64_t element_bytes(const RunConfig& config) { return config.precision.mode == PrecisionMode::fp32 ? 4 : 2; }

std::int64_t wire_bytes(WireType type) { return type == WireType::bf16 ? 2 : 4; }

MicroBatch micro_batch_of(const RunConfig& config, const data::StepSizes& sizes) {
  const bool examples = config.batch.unit == data::BatchUnit::examples;
  const auto size = static_cast<double>(sizes.micro_size);
  if (is_language_model(config)) {
    const auto width = static_cast<double>(config.batch.sequence_length);
    return {.target_positions = examples ? size * width : size, .target_width = width};
  }
  constexpr auto width = static_cast<double>(kAssumedSentence);
  const double side = examples ? size * width : size / 2;
  return {.source_positions = side, .target_positions = side, .source_width = width, .target_width = width};
}

ActivationMemory activations_of(const RunConfig& config, const spec::Architecture& shape, const MicroBatch& batch) {
  return activation_memory(shape, batch,
                           {.recompute = config.sharding.recompute,
                            .element_bytes = element_bytes(config),
                            .chunk_bytes = config.loss.chunk_bytes});
}

StepInputs step_inputs(const RunConfig& config, const spec::Architecture& shape, const SpaceSizes& spaces,
                       const data::StepSizes& sizes, const PlanTarget& target) {
  const partition::Layout& layout = target.layout;
  const MicroBatch batch = micro_batch_of(config, sizes);
  const auto padded = static_cast<double>(spaces.padded);
  StepInputs in{.nodes = layout.nodes(),
                .ranks_per_node = layout.slots(),
                .units = spaces.units,
                .accumulation = sizes.accumulation,
                .order = config.sharding.accumulation_order,
                .weight_bytes = padded * static_cast<double>(element_bytes(config))};
  in.micro_batch_s =
      target.gpu_positions_per_s
          ? (batch.source_positions + batch.target_positions) / *target.gpu_positions_per_s
          : compute_time(shape, batch, config.sharding.recompute, element_bytes(config), *target.gpu).total_s();
  in.inner_gradient_bytes = padded * static_cast<double>(wire_bytes(config.precision.gradient_wire.inner));
  in.outer_gradient_bytes = padded * static_cast<double>(wire_bytes(config.precision.gradient_wire.outer));
  in.links.inner_bytes_per_s = target.gpu->inner_bytes_per_s;
  in.links.outer_bytes_per_s = target.node_bytes_per_s.value_or(target.gpu->outer_bytes_per_s * layout.slots());
  return in;
}

WireBytes wire_of(const RunConfig& config) {
  return {.weight = element_bytes(config),
          .inner_gradient = wire_bytes(config.precision.gradient_wire.inner),
          .outer_gradient = wire_bytes(config.precision.gradient_wire.outer)};
}

/// Where the rate of a GPU is given, it has the update in it.
double update_time(Scheme scheme, const RunConfig& config, const SpaceSizes& spaces, const PlanTarget& target) {
  if (target.gpu_positions_per_s) return 0;
  const bool everywhere = scheme == Scheme::replicated;
  return optimizer_time(everywhere               ? spaces.padded
                        : scheme == Scheme::hsdp ? spaces.held
                                                 : spaces.owned,
                        config.optimizer.ema > 0, *target.gpu);
}

/// Of an element, beside its weights.
std::int64_t state_bytes(const RunConfig& config) {
  std::int64_t bytes = 0;
  for (const spec::StateTensor& tensor : optim::state_of(config.optimizer)) {
    if (tensor.name != spec::weights_tensor) bytes += static_cast<std::int64_t>(size_of(tensor.dtype));
  }
  return bytes;
}

SchemePlan plan_scheme(Scheme scheme, const RunConfig& config, const spec::Architecture& shape,
                       const SpaceSizes& spaces, const data::StepSizes& sizes, const PlanTarget& target) {
  const auto [weight, inner, outer] = wire_of(config);
  SchemePlan plan{.scheme = scheme};
  plan.state = state_memory(spaces, {.scheme = scheme,
                                     .weight_bytes = weight,
                                     .master_bytes = has_wide_master(config) ? 4 : 2,
                                     .state_bytes = state_bytes(config),
                                     .inner_wire_bytes = inner,
                                     .outer_wire_bytes = outer,
                                     .reduction = config.sharding.reduction});
  const double activations = activations_of(config, shape, micro_batch_of(config, sizes)).total();
  plan.total_bytes = plan.state.state() + plan.state.scratch + static_cast<std::int64_t>(activations);
  const Reduction reduction = config.sharding.reduction;
  plan.traffic =
      step_traffic(spaces, passes_of(scheme, sizes.accumulation, config.sharding.accumulation_order, reduction),
                   wire_of(config), reduction);
  if (target.gpu == nullptr) return plan;
  plan.fits = plan.total_bytes <= capacity_bytes(*target.gpu);
  const StepInputs in = step_inputs(config, shape, spaces, sizes, target);
  const double update_s = update_time(scheme, config, spaces, target);
  plan.step_s = step_time(scheme, in) + update_s;
  plan.flat_step_s = step_time(scheme, in, true) + update_s;
  return plan;
}

/// Replays what training would execute, for each scheme it knows.
void add_schedules(RunPlan& plan, const RunConfig& config, const spec::Architecture& shape) {
  const PlanTarget& target = plan.target;
  const bool elastic = config.sharding.reduction == Reduction::elastic;
  const PlanShape units = plan_shape(shape, target.layout);
  std::vector<partition::FlatSpace> spaces;
  for (const spec::Unit& unit : spec::ModelSpec(shape).units) spaces.emplace_back(unit.flat(), target.layout);
  CostInputs costs{.wire = wire_of(config), .reduction = config.sharding.reduction};
  if (target.gpu != nullptr) {
    costs.layout = step_inputs(config, shape, plan.spaces, plan.sizes, target);
    costs.visits = visit_times(shape, micro_batch_of(config, plan.sizes), config.sharding.recompute,
                               element_bytes(config), *target.gpu);
    double together_s = 0;
    for (const VisitTime& visit : costs.visits) together_s += visit.forward_s + visit.backward_s;
    for (VisitTime& visit : costs.visits) {  // a measured rate keeps the shares
      visit.forward_s *= costs.layout.micro_batch_s / together_s;
      visit.backward_s *= costs.layout.micro_batch_s / together_s;
    }
  }
  for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
    if (elastic && scheme == Scheme::hybrid) continue;  // refused
    const StepPlan schedule = plan_step(units, {.scheme = scheme,
                                                .order = config.sharding.accumulation_order,
                                                .reduce_every = elastic ? ReduceEvery::micro_batch : ReduceEvery::step,
                                                .micro_batches = plan.sizes.accumulation});
    SchemePlan& planned = plan.schemes[static_cast<std::size_t>(scheme)];
    planned.scheduled.emplace().traffic = planned_traffic(schedule, spaces, costs.wire, costs.reduction);
    if (target.gpu == nullptr) continue;
    costs.update_s = update_time(scheme, config, plan.spaces, target);
    const Replay replayed = replay_on_shared_links(schedule, op_cost(costs, spaces));
    planned.scheduled->step_s = replayed.step_s;
    planned.scheduled->exposed_s = replayed.exposed_s();
  }
}

/// Activations grow with the micro-batch, state and scratch do not.
std::int64_t largest_micro_size(const RunPlan& plan, const RunConfig& config, const spec::Architecture& shape) {
  const StateMemory& state = plan.chosen().state;
  const auto left = static_cast<double>(capacity_bytes(*plan.target.gpu) - state.state() - state.scratch);
  const auto fits = [&](std::int64_t micro_size) {
    data::StepSizes sizes = plan.sizes;
    sizes.micro_size = micro_size;
    return activations_of(config, shape, micro_batch_of(config, sizes)).total() <= left;
  };
  std::int64_t fitting = 0, too_large = 1;
  while (fits(too_large)) {
    fitting = too_large;
    too_large *= 2;
  }
  while (too_large - fitting > 1) {
    const std::int64_t middle = fitting + (too_large - fitting) / 2;
    (fits(middle) ? fitting : too_large) = middle;
  }
  return fitting;
}

/// The configured scheme on some layout.
SchemePlan plan_chosen(const RunConfig& config, const spec::Architecture& shape, PlanTarget target,
                       const partition::Layout& layout) {
  target.layout = layout;
  return plan_scheme(scheme_of(config.sharding), config, shape, space_sizes(shape, layout),
                     data::resolve_sizes(config.batch, layout.world()), target);
}

partition::Layout nodes_like(const partition::Layout& layout, int nodes) {
  return partition::Layout(std::vector<int>(static_cast<std::size_t>(nodes), layout.slots()));
}

RunConfig with_sizes(RunConfig config, std::int64_t global_size, std::int64_t micro_size) {
  config.batch.global_size = global_size;
  config.batch.micro_size = micro_size;
  config.batch.accumulation.reset();
  return config;
}

/// From one node to as many as leave each rank a micro-batch, doubling.
std::vector<LayoutPlan> plan_layouts(const RunConfig& config, const spec::Architecture& shape,
                                     const data::StepSizes& sizes, const PlanTarget& target) {
  std::vector<LayoutPlan> rows;
  for (int nodes = 1; nodes <= kMostNodes; nodes *= 2) {
    const partition::Layout layout = nodes_like(target.layout, nodes);
    if (nodes > 1 && layout.world() > std::max(sizes.micro_batches, target.layout.world())) break;
    const SchemePlan plan = plan_chosen(config, shape, target, layout);
    const data::StepSizes there = data::resolve_sizes(config.batch, layout.world());
    rows.push_back({.nodes = nodes,
                    .ranks = layout.world(),
                    .accumulation = there.accumulation,
                    .idle_share = there.idle_share,
                    .total_bytes = plan.total_bytes,
                    .fits = *plan.fits,
                    .step_s = *plan.step_s});
  }
  return rows;
}

std::string scheme_text(Scheme scheme) {
  if (scheme == Scheme::hybrid) return "--set sharding.zero_stage=3 --set sharding.scope=hybrid";
  return fmt::format("--set sharding.zero_stage={}", scheme == Scheme::stage_2 ? 2 : 3);
}

/// The single change that makes the run fit and costs least time; else the fewest nodes; else several changes.
class Cure {
 public:
  Cure(const RunConfig& config, const spec::Architecture& shape, const PlanTarget& target, const data::StepSizes& sizes)
      : config_(config), shape_(shape), target_(target), sizes_(sizes) {}

  std::string find() {
    for (const std::int64_t size : smaller_micro_sizes())
      offer(with_sizes(config_, sizes_.global_size, size), micro_text(size));
    for (const Recompute level : {Recompute::activation, Recompute::full, Recompute::block}) {
      if (level > config_.sharding.recompute) offer(with_recompute(config_, level), recompute_text(level));
    }
    for (const Scheme scheme : {Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
      if (scheme > scheme_of(config_.sharding)) offer(with_scheme(config_, scheme), scheme_text(scheme));
    }
    if (!best_.empty()) return best_;
    for (int nodes = 2 * target_.layout.nodes(); nodes <= kMostNodes; nodes *= 2) {
      const partition::Layout layout = nodes_like(target_.layout, nodes);
      if (layout.world() > sizes_.micro_batches) break;
      if (*plan_chosen(config_, shape_, target_, layout).fits) return fmt::format("take {} nodes", nodes);
    }
    for (const Scheme scheme : {Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
      for (const Recompute level : {Recompute::activation, Recompute::full, Recompute::block}) {
        const RunConfig both = with_recompute(with_scheme(config_, scheme), level);
        const std::string text = scheme_text(scheme) + " and " + recompute_text(level);
        offer(both, text);
        for (const std::int64_t size : smaller_micro_sizes())
          offer(with_sizes(both, sizes_.global_size, size), text + " and " + micro_text(size));
      }
    }
    return best_.empty() ? "no choice of micro-batch, recompute or stage fits this layout: take GPUs with more memory, "
                           "or more of them"
                         : best_;
  }

 private:
  void offer(const RunConfig& config, const std::string& text) {
    const SchemePlan plan = plan_chosen(config, shape_, target_, target_.layout);
    if (!*plan.fits || (!best_.empty() && *plan.step_s >= worth_it * best_step_s_)) return;
    best_ = text;
    best_step_s_ = *plan.step_s;
  }

  /// Divisors of the micro-batch, so that the step stays what it is.
  std::vector<std::int64_t> smaller_micro_sizes() const {
    std::vector<std::int64_t> sizes;
    for (std::int64_t parts = 2; parts <= std::min<std::int64_t>(sizes_.micro_size, 64); ++parts) {
      if (sizes_.micro_size % parts == 0) sizes.push_back(sizes_.micro_size / parts);
    }
    return sizes;
  }

  static RunConfig with_recompute(RunConfig config, Recompute level) {
    config.sharding.recompute = level;
    return config;
  }
  static RunConfig with_scheme(RunConfig config, Scheme scheme) {
    config.sharding.zero_stage = scheme == Scheme::stage_2 ? 2 : 3;
    config.sharding.scope = scheme == Scheme::hybrid ? ShardingScope::hybrid : ShardingScope::world;
    return config;
  }
  static std::string micro_text(std::int64_t size) { return fmt::format("--set batch.micro_size={}", size); }
  static std::string recompute_text(Recompute level) {
    return fmt::format("--set sharding.recompute={}", boost::describe::enum_to_string(level, ""));
  }

  static constexpr double worth_it = 0.98;  // a later, larger change must save more than 2 % of a step

  const RunConfig& config_;
  const spec::Architecture& shape_;
  const PlanTarget& target_;
  const data::StepSizes& sizes_;
  std::string best_;
  double best_step_s_ = 0;
};

/// Of every unit and rank, each dataset up to its alignment.
std::int64_t checkpoint_bytes(const RunConfig& config, const spec::Architecture& shape,
                              const partition::Layout& layout) {
  std::map<std::size_t, std::int64_t> ranks;  // by slots they own
  for (int rank = 0; rank < layout.world(); ++rank) ++ranks[layout.slots_of(rank).size()];
  std::int64_t bytes = 0;
  for (const spec::Unit& unit : spec::ModelSpec(shape).units) {
    const std::int64_t slice = partition::FlatSpace(unit.flat(), layout).slice_size();
    for (const auto& [slots, count] : ranks) {
      const std::int64_t size = 4 * slice * static_cast<std::int64_t>(slots);
      bytes += count * std::ssize(optim::state_of(config.optimizer)) *
               ((size + kStoredAlignment - 1) / kStoredAlignment * kStoredAlignment);
    }
  }
  return bytes;
}

std::optional<std::int64_t> disk_bytes(const RunConfig& config, const RunPlan& plan) {
  double exports = 1;  // at the end
  if (const config::Period& every = config.checkpoint.export_interval; every.count > 0) {
    if (!plan.steps || every.unit != config::Period::Unit::step) return std::nullopt;
    exports = std::ceil(*plan.steps / every.count);
  }
  const std::int64_t tensors = std::ssize(optim::state_of(config.optimizer)),
                     left_out = std::ssize(optim::own_state_of(config.optimizer));
  const std::int64_t exported = config.checkpoint.export_state == ExportState::weights ? tensors - left_out : tensors;
  // In fp64: as many checkpoints as a setting may name are more bytes than 64 bits count.
  const double bytes = static_cast<double>(plan.checkpoint_bytes) *
                       (static_cast<double>(config.checkpoint.max_checkpoints) + 1 +
                        static_cast<double>(exported) / static_cast<double>(tensors) * exports);
  return static_cast<std::int64_t>(std::min(bytes, 0x1p62));
}

}  // namespace

partition::Layout spread(int ranks, std::optional<int> nodes) {
  const int count = nodes.value_or((ranks + 7) / 8);
  if (count < 1 || count > ranks) {
    throw Error{Fault::usage,
                {.wanted = fmt::format("1 to {} nodes for {} ranks", ranks, ranks),
                 .got = std::to_string(count),
                 .where = "--nodes"}};
  }
  std::vector<int> sizes(static_cast<std::size_t>(count), ranks / count);
  for (int node = 0; node < ranks % count; ++node) ++sizes[static_cast<std::size_t>(node)];
  return partition::Layout(std::move(sizes));
}

void require_fits(const RunPlan& plan) {
  if (plan.cure.empty()) return;
  constexpr double gibi = 1 << 30;
  throw Error{Fault::config,
              {.wanted = fmt::format("{:.1f} GiB a rank", static_cast<double>(plan.chosen().total_bytes) / gibi),
               .got = fmt::format("{:.1f} GiB of a {}", static_cast<double>(capacity_bytes(*plan.target.gpu)) / gibi,
                                  plan.target.gpu->name),
               .where = "memory",
               .remedy = plan.cure}};
}

void require_state_fits(const RunPlan& plan, std::int64_t capacity_bytes) {
  const auto bytes_of = [&](const StateMemory& state) {
    return state.state() + state.scratch + (plan.target.gpu ? 0 : plan.copy_bytes);
  };
  const std::int64_t needed = bytes_of(plan.chosen().state);
  if (needed <= capacity_bytes) return;
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string remedy = plan.cure;
  for (const Scheme scheme : {Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
    const std::int64_t then = bytes_of(plan.schemes[static_cast<std::size_t>(scheme)].state);
    if (!remedy.empty() || then > capacity_bytes) continue;
    remedy = fmt::format("{} ({:.0f} MiB)", scheme_text(scheme), mib(then));
  }
  if (remedy.empty()) remedy = "take more nodes or fewer ranks a node; no stage fits these";
  throw Error{Fault::config,
              {.wanted = fmt::format("{:.0f} MiB a rank for {} on {} ranks of {} nodes", mib(needed),
                                     boost::describe::enum_to_string(plan.scheme, ""), plan.target.layout.world(),
                                     plan.target.layout.nodes()),
               .got = fmt::format("{:.0f} MiB", mib(capacity_bytes)),
               .where = "memory",
               .remedy = std::move(remedy)}};
}

RunPlan plan_run(const RunConfig& config, const spec::Architecture& shape, const PlanTarget& target) {
  RunPlan plan{.target = target, .spaces = space_sizes(shape, target.layout)};
  plan.sizes = data::resolve_sizes(config.batch, target.layout.world());
  plan.position_name = is_language_model(config) ? "tgt_tokens" : "padded_tokens";
  const MicroBatch batch = micro_batch_of(config, plan.sizes);
  const double positions = batch.source_positions + batch.target_positions;
  plan.positions_per_step = positions * plan.sizes.micro_batches;
  const config::Period& length = config.schedule.length;
  if (length.unit == config::Period::Unit::step) plan.steps = length.count;
  if (length.unit == config::Period::Unit::tgt_token && is_language_model(config))
    plan.steps = std::ceil(length.count / plan.positions_per_step);
  if (plan.steps) plan.positions_in_all = *plan.steps * plan.positions_per_step;

  telemetry::Work work = work_of(shape, batch);
  plan.flops = telemetry::flops_of(flop_shape(shape), work);
  plan.flops = {.causal = plan.flops.causal / positions, .full = plan.flops.full / positions};
  const auto width = static_cast<std::int64_t>(batch.target_width);
  work.decoder_pairs = batch.target_positions / batch.target_width * telemetry::exact_pairs(width, shape.window);
  plan.exact_flops = telemetry::flops_of(flop_shape(shape), work).causal / positions;

  plan.activations = activations_of(config, shape, batch);
  plan.scheme = scheme_of(config.sharding);
  for (const Scheme scheme :
       {Scheme::replicated, Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid, Scheme::hsdp}) {
    plan.schemes.push_back(plan_scheme(scheme, config, shape, plan.spaces, plan.sizes, target));
  }
  add_schedules(plan, config, shape);
  if (target.gpu != nullptr) {
    const RunConfig same_step = with_sizes(config, plan.sizes.global_size, plan.sizes.micro_size);
    plan.layouts = plan_layouts(same_step, shape, plan.sizes, target);
    plan.largest_micro_size = largest_micro_size(plan, config, shape);
    if (!*plan.chosen().fits) plan.cure = Cure(same_step, shape, target, plan.sizes).find();
  }
  const optim::Schedule schedule = optim::resolve(config.schedule, is_language_model(config));
  for (const double at : {1.0, schedule.warmup, schedule.decay_end / 2, schedule.decay_end}) {
    if (at > 0) plan.learning_rates.emplace_back(at, optim::learning_rate(schedule, at));
  }
  plan.checkpoint_bytes = checkpoint_bytes(config, shape, target.layout);
  plan.copy_bytes = std::ssize(optim::state_of(config.optimizer)) * 4 * plan.spaces.owned;
  plan.disk_bytes = disk_bytes(config, plan);
  return plan;
}

}  // namespace argosy::plan
