#include "plan/op_cost.hpp"

#include <algorithm>

namespace argosy::plan {

namespace {

constexpr double kNormShare = 4.0 / 34;  // of the bytes of norm and update

/// Every rank sends every owner its slices: as many bytes out of a node as it has ranks times the other nodes' share.
double elastic_time(const StepInputs& layout, double elements) {
  const double n = layout.nodes, g = layout.ranks_per_node, bytes = 4 * elements;
  return (n - 1) * g * layout.links.outer_latency_s + (g - 1) * layout.links.inner_latency_s +
         std::max(n > 1 ? g * (n - 1) / n * bytes / layout.links.outer_bytes_per_s : 0.0,
                  (g - 1) / g / n * bytes / layout.links.inner_bytes_per_s);
}

}  // namespace

OpCost op_cost(const CostInputs& in, const std::vector<partition::FlatSpace>& spaces) {
  std::vector<double> elements;
  double all = 0;
  for (const partition::FlatSpace& space : spaces) {
    elements.push_back(static_cast<double>(space.padded_size()));
    all += elements.back();
  }
  StepInputs layout = in.layout;
  layout.units = 1;
  return [in, layout, elements, all](const Op& op) {
    const double size = op.unit < 0 ? 0 : elements[static_cast<std::size_t>(op.unit)];
    const auto moved = [&](double inner_element, double outer_element) {
      switch (op.levels) {
        case comm::Levels::inner:
          return inner_time(layout, size * inner_element);
        case comm::Levels::outer:
          return outer_time(layout, size * outer_element);
        case comm::Levels::both:
          break;
      }
      return hierarchical_time(layout, size * inner_element, size * outer_element);
    };
    switch (op.kind) {
      case OpKind::forward:
        return in.visits[static_cast<std::size_t>(op.visit)].forward_s;
      case OpKind::backward:
        return in.visits[static_cast<std::size_t>(op.visit)].backward_s;
      case OpKind::norm:
        return kNormShare * in.update_s;
      case OpKind::update:
        return (1 - kNormShare) * in.update_s * size / all;
      case OpKind::gather:
        return moved(static_cast<double>(in.wire.weight), static_cast<double>(in.wire.weight));
      case OpKind::reduce:
        if (in.reduction == comm::Reduction::elastic) return elastic_time(layout, size);
        return moved(static_cast<double>(in.wire.inner_gradient), static_cast<double>(in.wire.outer_gradient));
    }
    return 0.0;
  };
}

}  // namespace argosy::plan
