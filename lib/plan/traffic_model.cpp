#include "plan/traffic_model.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace argosy::plan {

std::pair<std::int64_t, std::int64_t> element_bytes(Payload payload, const WireBytes& wire) noexcept {
  switch (payload) {
    case Payload::weights:
      return {wire.weight, wire.weight};
    case Payload::gradients:
      return {wire.inner_gradient, wire.outer_gradient};
    case Payload::sums:
      break;
  }
  return {4, 4};
}

std::vector<Collective> collectives_of(const Op& op, std::optional<Comparison> other) {
  using comm::Levels;
  if (op.kind == OpKind::to_owners) return {{OpKind::gather, op.levels, Payload::sums}};
  if (op.kind == OpKind::to_shards) return {{OpKind::reduce, op.levels, Payload::gradients}};
  if (op.kind != OpKind::gather && op.kind != OpKind::reduce) return {};
  const bool reduces = op.kind == OpKind::reduce;
  const Collective own{op.kind, op.levels, reduces ? Payload::gradients : Payload::weights};
  if (!other) return {own};
  const bool sharded_inside = *other == Comparison::hsdp;
  if (reduces) {  // an all-reduce is a reduce-scatter and a gather
    if (sharded_inside && op.levels == Levels::inner) return {own};
    return {own, {OpKind::gather, sharded_inside ? Levels::outer : Levels::both, Payload::gradients}};
  }
  if (!sharded_inside || op.levels == Levels::outer) return {};
  return {{OpKind::gather, Levels::inner, Payload::weights}};
}

namespace {

comm::Traffic::Bytes bytes_of(const Collective& what, const partition::FlatSpace& space, int rank,
                              const WireBytes& wire, comm::Reduction reduction) {
  if (what.kind == OpKind::gather) {
    const auto [inner, outer] = element_bytes(what.payload, wire);
    comm::Traffic::Bytes sent = comm::all_gather_bytes(space, rank, inner);
    sent.outer = comm::all_gather_bytes(space, rank, outer).outer;
    return sent.of(what.levels);
  }
  if (reduction == comm::Reduction::elastic) {  // comm::elastic_bytes asks every rank; a node's share is 1/N
    const std::int64_t padded = space.padded_size(), share = padded / space.layout().nodes();
    return {.inner = (share - space.owned_size(rank)) * 4, .outer = (padded - share) * 4};
  }
  return comm::reduce_scatter_bytes(space, rank, wire.inner_gradient, wire.outer_gradient).of(what.levels);
}

}  // namespace

StepTraffic planned_traffic(const StepPlan& plan, std::span<const partition::FlatSpace> spaces, const WireBytes& wire,
                            comm::Reduction reduction, std::optional<Comparison> other) {
  std::map<std::pair<int, Collective>, std::int64_t> times;  // by unit and what is done with it
  for (const Op& op : plan.ops) {
    for (const Collective& what : collectives_of(op, other)) ++times[{op.unit, what}];
  }
  const auto sent_by = [&](int rank) {
    comm::Traffic::Bytes sent;
    for (const auto& [what, count] : times) {
      const comm::Traffic::Bytes once =
          bytes_of(what.second, spaces[static_cast<std::size_t>(what.first)], rank, wire, reduction);
      sent.inner += count * once.inner;
      sent.outer += count * once.outer;
    }
    return sent;
  };
  StepTraffic traffic;
  const partition::Layout& layout = spaces.front().layout();
  std::set<int> seen;  // sizes of nodes: those of one size send alike
  for (int node = 0; node < layout.nodes(); ++node) {
    if (!seen.insert(layout.node_size(node)).second) continue;
    std::int64_t left = 0;
    for (int local = 0; local < layout.node_size(node); ++local) {
      const comm::Traffic::Bytes sent = sent_by(layout.canonical_rank(node, local));
      left += sent.outer;
      if (sent.inner + sent.outer > traffic.rank()) {
        traffic.rank_inner = sent.inner;
        traffic.rank_outer = sent.outer;
      }
    }
    traffic.node = std::max(traffic.node, left);
  }
  return traffic;
}

}  // namespace argosy::plan
