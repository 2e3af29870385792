#pragma once

#include <algorithm>

#include "comm/traffic.hpp"
#include "plan/scheme_plan.hpp"
#include "plan_support.hpp"
#include "spec/model_spec.hpp"

/// Closed formulas of a step's traffic and seconds, which move every unit every time: the independent check of what the
/// planner reads off a replayed step plan, and where published figures are compared.
namespace argosy::test::formulas {

using plan::AccumulationOrder, plan::Links, plan::WireBytes;

enum class Scheme { ddp, stage_1, stage_2, stage_3, hybrid, hsdp };

/// Passes over all units in a step, by operation and level.
struct Passes {
  std::int64_t inner_reduces = 0, outer_reduces = 0;  // of gradients
  std::int64_t inner_gathers = 0, outer_gathers = 0;  // of weights
  std::int64_t inner_gradient_gathers = 0, outer_gradient_gathers = 0;
};
inline Passes passes_of(Scheme scheme, std::int64_t accumulation, AccumulationOrder order) {
  const std::int64_t visits = order == AccumulationOrder::breadth_first ? 1 : accumulation;
  switch (scheme) {
    case Scheme::ddp:
      return {.inner_reduces = 1, .outer_reduces = 1, .inner_gradient_gathers = 1, .outer_gradient_gathers = 1};
    case Scheme::stage_1:
      return {.inner_reduces = 1, .outer_reduces = 1, .inner_gathers = 1, .outer_gathers = 1};
    case Scheme::stage_2:
      return {.inner_reduces = visits, .outer_reduces = visits, .inner_gathers = 1, .outer_gathers = 1};
    case Scheme::stage_3:
      return {
          .inner_reduces = visits, .outer_reduces = visits, .inner_gathers = 2 * visits, .outer_gathers = 2 * visits};
    case Scheme::hybrid:
      return {.inner_reduces = visits, .outer_reduces = 1, .inner_gathers = 2 * visits + 1, .outer_gathers = 1};
    case Scheme::hsdp:
      return {.inner_reduces = visits, .outer_reduces = 1, .inner_gathers = 2 * visits, .outer_gradient_gathers = 1};
  }
  return {};
}

struct Traffic : plan::StepTraffic {
  /// `node` where one flat ring of contiguous ranks carries what runs over the whole world.
  std::int64_t node_flat = 0;
};

/// Of nodes alike.
inline Traffic step_traffic(const plan::SpaceSizes& sizes, const Passes& passes, const WireBytes& wire) {
  const std::int64_t nodes = sizes.layout.nodes(), ranks = sizes.layout.slots(), slot = sizes.all.padded / ranks;
  const std::int64_t inner = (passes.inner_reduces + passes.inner_gradient_gathers) * wire.inner_gradient +
                             passes.inner_gathers * wire.weight,
                     outer = (passes.outer_reduces + passes.outer_gradient_gathers) * wire.outer_gradient +
                             passes.outer_gathers * wire.weight;
  Traffic traffic;
  traffic.rank_inner = (ranks - 1) * slot * inner;
  traffic.rank_outer = (nodes - 1) * (slot / nodes) * outer;
  traffic.node = traffic.node_flat = ranks * traffic.rank_outer;
  const bool over_the_world =
      passes.inner_reduces == passes.outer_reduces && passes.inner_gathers == passes.outer_gathers;
  if (nodes > 1 && over_the_world) {  // a ring crosses each border once: (p-1)/p of the units
    const auto world = static_cast<double>(sizes.layout.world());
    traffic.node_flat = static_cast<std::int64_t>(static_cast<double>(sizes.all.padded) * static_cast<double>(outer) *
                                                  (world - 1) / world);
  }
  return traffic;
}

/// What the ranks of a layout send, by `sent_by(rank)`: that of the rank that sends most, and out of each node.
struct Sent {
  template <class SentBy>
  Sent(const partition::Layout& layout, const SentBy& sent_by) : left(static_cast<std::size_t>(layout.nodes())) {
    for (int rank = 0; rank < layout.world(); ++rank) {
      const comm::Traffic::Bytes sent = sent_by(rank);
      left[static_cast<std::size_t>(layout.node_of(rank))] += sent.outer;
      if (sent.inner + sent.outer > most.inner + most.outer) most = sent;
    }
  }
  comm::Traffic::Bytes most;
  std::vector<std::int64_t> left;
};

/// The flat spaces of a model's units.
inline std::vector<partition::FlatSpace> spaces_of(const spec::Architecture& shape, const partition::Layout& layout) {
  std::vector<partition::FlatSpace> spaces;
  for (const spec::Unit& unit : spec::ModelSpec(shape).units) spaces.emplace_back(unit.flat(), layout);
  return spaces;
}

struct StepInputs {
  int nodes = 1, ranks_per_node = 1, units = 1;
  int accumulation = 1;
  double micro_batch_s = 0;  // forward a third, backward two thirds
  double weight_bytes = 0;   // of all units
  double inner_gradient_bytes = 0, outer_gradient_bytes = 0;
  Links links{};
};

inline double fraction(double parts) { return (parts - 1) / parts; }

/// One pass over all units of so many bytes, on one ring over all ranks of several nodes.
inline double flat_time(const StepInputs& in, double size_bytes) {
  const double n = in.nodes, g = in.ranks_per_node, p = n * g;
  const Links& links = in.links;
  return in.units * (n * links.outer_latency_s + (p - n) * links.inner_latency_s) +
         fraction(p) * size_bytes / std::min(links.outer_bytes_per_s, links.inner_bytes_per_s);
}

inline double hierarchical_time(const StepInputs& in, double inner_bytes, double outer_bytes) {
  const double n = in.nodes, g = in.ranks_per_node;
  return in.units * ((n - 1) * in.links.outer_latency_s + (g - 1) * in.links.inner_latency_s) +
         std::max(fraction(n) * outer_bytes / in.links.outer_bytes_per_s,
                  fraction(g) * inner_bytes / in.links.inner_bytes_per_s);
}

inline double inner_time(const StepInputs& in, double size_bytes) {
  const double g = in.ranks_per_node;
  return in.units * (g - 1) * in.links.inner_latency_s + fraction(g) * size_bytes / in.links.inner_bytes_per_s;
}

inline double outer_time(const StepInputs& in, double size_bytes) {
  const double n = in.nodes;
  return in.units * (n - 1) * in.links.outer_latency_s + fraction(n) * size_bytes / in.links.outer_bytes_per_s;
}

/// Of micro-batches one after the other; ddp aside.
inline double step_time(Scheme scheme, const StepInputs& in, bool flat = false) {
  const double weights =
      flat ? flat_time(in, in.weight_bytes) : hierarchical_time(in, in.weight_bytes, in.weight_bytes);
  const double gradients = flat ? flat_time(in, std::max(in.inner_gradient_bytes, in.outer_gradient_bytes))
                                : hierarchical_time(in, in.inner_gradient_bytes, in.outer_gradient_bytes);
  const double times = in.accumulation, forward = in.micro_batch_s / 3, backward = 2 * forward;
  const auto exposed = [](double communication, double beside) { return std::max(0.0, communication - beside); };
  switch (scheme) {
    case Scheme::ddp:
      break;
    case Scheme::stage_1:
      return times * (forward + backward) + exposed(gradients, backward) + exposed(weights, forward);
    case Scheme::stage_2:
      return times * (forward + std::max(backward, gradients)) + exposed(weights, forward);
    case Scheme::stage_3:
      return times * (std::max(forward, weights) + std::max(backward, weights + gradients));
    case Scheme::hybrid:
    case Scheme::hsdp: {
      const double gather = inner_time(in, in.weight_bytes), reduce = inner_time(in, in.inner_gradient_bytes),
                   within = times * (std::max(forward, gather) + std::max(backward, gather + reduce));
      if (scheme == Scheme::hsdp) return within + exposed(2 * outer_time(in, in.outer_gradient_bytes), backward);
      return within + exposed(gradients, backward) + exposed(weights, forward);
    }
  }
  return 0;
}

inline int bytes_of(plan::WireType type) { return type == plan::WireType::bf16 ? 2 : 4; }

/// Of a configuration.
inline StepInputs inputs_of(const plan::RunConfig& config, const plan::PlanTarget& where) {
  const spec::ModelSpec spec = shape_of(config);
  const plan::SchemePlanner planner{config, spec, where};
  const auto padded = static_cast<double>(planner.spaces().all.padded);
  const plan::MicroBatch& batch = planner.micro_batch();
  const double micro_batch_s =
      where.gpu_positions_per_s
          ? batch.target_positions / *where.gpu_positions_per_s
          : plan::compute_time(spec.architecture, batch, config.sharding.recompute, 2, *where.gpu).total_s();
  const double node_bytes_per_s = where.node_bytes_per_s.value_or(where.gpu->outer_bytes_per_s * where.layout.slots());
  return {.nodes = where.layout.nodes(),
          .ranks_per_node = where.layout.slots(),
          .units = planner.spaces().units,
          .accumulation = planner.sizes().accumulation,
          .micro_batch_s = micro_batch_s,
          .weight_bytes = 2 * padded,
          .inner_gradient_bytes = bytes_of(config.precision.gradient_wire.inner) * padded,
          .outer_gradient_bytes = bytes_of(config.precision.gradient_wire.outer) * padded,
          .links = {.outer_bytes_per_s = node_bytes_per_s, .inner_bytes_per_s = where.gpu->inner_bytes_per_s}};
}
inline Traffic traffic_of(const plan::RunConfig& config, const plan::PlanTarget& where, Scheme scheme) {
  const spec::ModelSpec spec = shape_of(config);
  const plan::SchemePlanner planner{config, spec, where};
  const plan::GradientWire& wire = config.precision.gradient_wire;
  return step_traffic(planner.spaces(),
                      passes_of(scheme, planner.sizes().accumulation, config.sharding.accumulation_order),
                      {2, bytes_of(wire.inner), bytes_of(wire.outer)});
}

}  // namespace argosy::test::formulas
