#include "plan/traffic_model.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.hpp"

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

comm::Traffic::Bytes sent_bytes(const StepPlan& plan, std::span<const partition::FlatSpace> spaces,
                                const WireBytes& wire, comm::Reduction reduction, std::optional<Comparison> other,
                                const std::function<int(std::size_t component)>& rank_in) {
  std::map<std::tuple<int, std::size_t, Collective>, std::int64_t> times;  // by unit, component and what is done
  for (const Op& op : plan.ops) {
    for (const Collective& what : collectives_of(op, other)) ++times[{op.unit, op.group, what}];
  }
  comm::Traffic::Bytes sent;
  for (const auto& [key, count] : times) {
    const auto& [unit, component, what] = key;
    const comm::Traffic::Bytes once =
        bytes_of(what, spaces[static_cast<std::size_t>(unit)], rank_in(component), wire, reduction);
    sent.inner += count * once.inner;
    sent.outer += count * once.outer;
  }
  return sent;
}

StepTraffic traffic_of(const partition::Layout& layout, std::span<const comm::Traffic::Bytes> by_rank) {
  StepTraffic traffic;
  std::vector<std::int64_t> left(static_cast<std::size_t>(layout.nodes()));  // by node
  for (int rank = 0; const comm::Traffic::Bytes& sent : by_rank) {
    left[static_cast<std::size_t>(layout.node_of(rank++))] += sent.outer;
    if (sent.inner + sent.outer <= traffic.rank()) continue;
    traffic.rank_inner = sent.inner;
    traffic.rank_outer = sent.outer;
  }
  traffic.node = std::ranges::max(left);
  return traffic;
}

StepTraffic planned_traffic(const StepPlan& plan, std::span<const partition::FlatSpace> spaces, const WireBytes& wire,
                            comm::Reduction reduction, std::optional<Comparison> other) {
  const partition::Layout& layout = spaces.front().layout();
  std::map<int, comm::Traffic::Bytes> by_slots;  // ranks that own as many slots of a node as large send alike
  std::vector<comm::Traffic::Bytes> by_rank;
  for (int rank = 0; rank < layout.world(); ++rank) {
    const int size = layout.node_size(layout.node_of(rank));
    const int kind = size * (layout.slots() + 1) + narrow<int>(std::ssize(layout.slots_of(rank)));
    if (!by_slots.contains(kind))
      by_slots[kind] = sent_bytes(plan, spaces, wire, reduction, other, [rank](std::size_t) { return rank; });
    by_rank.push_back(by_slots[kind]);
  }
  return traffic_of(layout, by_rank);
}

}  // namespace argosy::plan
