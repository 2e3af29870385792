#include "plan/traffic_model.hpp"

#include <algorithm>
#include <set>

namespace argosy::plan {

Passes passes_of(Scheme scheme, std::int64_t accumulation, AccumulationOrder order, comm::Reduction reduction) {
  const std::int64_t visits = order == AccumulationOrder::breadth_first ? 1 : accumulation;
  switch (scheme) {
    case Scheme::replicated:
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

StepTraffic step_traffic(const SpaceSizes& sizes, const Passes& passes, const WireBytes& wire,
                         comm::Reduction reduction) {
  const bool elastic = reduction == comm::Reduction::elastic;
  const partition::Layout& layout = sizes.layout;
  const std::int64_t nodes = layout.nodes(), slot = sizes.padded / layout.slots(), slice = slot / nodes;
  const std::int64_t inner_gathered =
      passes.inner_gathers * wire.weight + passes.inner_gradient_gathers * wire.inner_gradient;
  // Of sums and gathers of slots; elastic sums are counted apart.
  const std::int64_t outer = (elastic ? 0 : passes.outer_reduces * wire.outer_gradient) +
                             passes.outer_gathers * wire.weight + passes.outer_gradient_gathers * wire.outer_gradient;
  const std::int64_t inner_reduced = elastic ? 0 : passes.inner_reduces * wire.inner_gradient;
  const std::int64_t inner_elastic = elastic ? passes.inner_reduces * 4 : 0,
                     outer_elastic = elastic ? passes.outer_reduces * 4 * (nodes - 1) * (sizes.padded / nodes) : 0;
  StepTraffic traffic;
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
    traffic.node_flat = static_cast<std::int64_t>(static_cast<double>(sizes.padded) * static_cast<double>(outer) *
                                                  static_cast<double>(world - 1) / static_cast<double>(world));
  }
  return traffic;
}

}  // namespace argosy::plan
