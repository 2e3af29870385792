#pragma once

#include <algorithm>
#include <set>

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
inline Passes passes_of(Scheme scheme, std::int64_t accumulation, AccumulationOrder order,
                        comm::Reduction reduction = comm::Reduction::exact) {
  const std::int64_t visits = order == AccumulationOrder::breadth_first ? 1 : accumulation;
  switch (scheme) {
    case Scheme::ddp:
      return {.inner_reduces = 1, .outer_reduces = 1, .inner_gradient_gathers = 1, .outer_gradient_gathers = 1};
    case Scheme::stage_1:
      if (reduction == comm::Reduction::elastic) return passes_of(Scheme::stage_2, accumulation, order);
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

inline Traffic step_traffic(const plan::SpaceSizes& sizes, const Passes& passes, const WireBytes& wire,
                            comm::Reduction reduction = comm::Reduction::exact) {
  const bool elastic = reduction == comm::Reduction::elastic;
  const partition::Layout& layout = sizes.layout;
  const std::int64_t nodes = layout.nodes(), slot = sizes.all.padded / layout.slots(), slice = slot / nodes;
  const std::int64_t inner_gathered =
      passes.inner_gathers * wire.weight + passes.inner_gradient_gathers * wire.inner_gradient;
  // Of sums and gathers of slots; elastic sums are counted apart.
  const std::int64_t outer = (elastic ? 0 : passes.outer_reduces * wire.outer_gradient) +
                             passes.outer_gathers * wire.weight + passes.outer_gradient_gathers * wire.outer_gradient;
  const std::int64_t inner_reduced = elastic ? 0 : passes.inner_reduces * wire.inner_gradient;
  const std::int64_t inner_elastic = elastic ? passes.inner_reduces * 4 : 0,
                     outer_elastic = elastic ? passes.outer_reduces * 4 * (nodes - 1) * (sizes.all.padded / nodes) : 0;
  Traffic traffic;
  for (const int size : std::set<int>(layout.node_sizes().begin(), layout.node_sizes().end())) {
    // The rank of such a node that owns most slots sends most: whoever owns more passes on more.
    const std::int64_t owned = (layout.slots() + size - 1) / size;
    for (const std::int64_t slots : {owned, layout.slots() / static_cast<std::int64_t>(size)}) {
      const std::int64_t inside = (layout.slots() - slots) * (slot * inner_reduced + slice * inner_elastic) +
                                  slots * slot * (size - 1) * inner_gathered;
      const std::int64_t across = slots * (nodes - 1) * slice * outer + outer_elastic;
      if (inside + across > traffic.rank()) {
        traffic.rank_inner = inside;
        traffic.rank_outer = across;
      }
    }
    traffic.node = std::max(traffic.node, layout.slots() * (nodes - 1) * slice * outer + size * outer_elastic);
  }
  traffic.node_flat = traffic.node;
  const bool over_the_world =
      passes.inner_reduces == passes.outer_reduces && passes.inner_gathers == passes.outer_gathers;
  if (nodes > 1 && over_the_world && !elastic) {  // a ring crosses each border once: (p-1)/p of the units
    const std::int64_t world = layout.world();
    traffic.node_flat = static_cast<std::int64_t>(static_cast<double>(sizes.all.padded) * static_cast<double>(outer) *
                                                  static_cast<double>(world - 1) / static_cast<double>(world));
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
  AccumulationOrder order = AccumulationOrder::depth_first;
  double micro_batch_s = 0;  // forward a third, backward two thirds
  double weight_bytes = 0;   // of all units
  double inner_gradient_bytes = 0, outer_gradient_bytes = 0;
  Links links{};
};

inline double fraction(double parts) { return (parts - 1) / parts; }

/// One pass over all units of so many bytes, on one ring over all ranks.
inline double flat_time(const StepInputs& in, double size_bytes) {
  const double n = in.nodes, g = in.ranks_per_node, p = n * g;
  const Links& links = in.links;
  const double latency =
      in.nodes > 1 ? n * links.outer_latency_s + (p - n) * links.inner_latency_s : (p - 1) * links.inner_latency_s;
  return in.units * latency + std::max(in.nodes > 1 ? fraction(p) * size_bytes / links.outer_bytes_per_s : 0.0,
                                       fraction(p) * size_bytes / links.inner_bytes_per_s);
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
  if (in.nodes == 1) return 0;
  const double n = in.nodes;
  return in.units * (n - 1) * in.links.outer_latency_s + fraction(n) * size_bytes / in.links.outer_bytes_per_s;
}

inline double step_time(Scheme scheme, const StepInputs& in, bool flat = false) {
  const auto inside = [&](double size_bytes) { return inner_time(in, size_bytes); };
  const double weights =
      flat ? flat_time(in, in.weight_bytes) : hierarchical_time(in, in.weight_bytes, in.weight_bytes);
  const double gradients = flat ? flat_time(in, std::max(in.inner_gradient_bytes, in.outer_gradient_bytes))
                                : hierarchical_time(in, in.inner_gradient_bytes, in.outer_gradient_bytes);
  // Breadth-first runs all micro-batches through a unit as if they were one.
  const bool breadth = in.order == AccumulationOrder::breadth_first;
  const double times = breadth ? 1 : in.accumulation;
  const double forward = in.micro_batch_s / 3 * (breadth ? in.accumulation : 1), backward = 2 * forward;
  const auto exposed = [](double communication, double beside) { return std::max(0.0, communication - beside); };
  switch (scheme) {
    case Scheme::ddp:
      return times * (forward + backward) + exposed(2 * gradients, backward);
    case Scheme::stage_1:
      return times * (forward + backward) + exposed(gradients, backward) + exposed(weights, forward);
    case Scheme::stage_2:
      return times * (forward + std::max(backward, gradients)) + exposed(weights, forward);
    case Scheme::stage_3:
      return times * (std::max(forward, weights) + std::max(backward, weights + gradients));
    case Scheme::hybrid:
    case Scheme::hsdp: {
      const double within = times * (std::max(forward, inside(in.weight_bytes)) +
                                     std::max(backward, inside(in.weight_bytes) + inside(in.inner_gradient_bytes)));
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
          .order = config.sharding.accumulation_order,
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
