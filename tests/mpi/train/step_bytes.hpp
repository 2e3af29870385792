#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <ostream>
#include <vector>

#include "mpi/train/rank.hpp"

namespace argosy::test {

/// Bytes of gradients and weights that a rank sends in a step.
struct StepBytes {
  comm::Traffic::Bytes reduced, gathered;
  static StepBytes counted(const comm::Collectives& collectives) {
    const auto& counted = collectives.traffic().by_operation;
    const auto bytes = [&](const char* operation) {
      const auto found = counted.find(operation);
      return found == counted.end() ? comm::Traffic::Bytes{}
                                    : comm::Traffic::Bytes{found->second.inner, found->second.outer};
    };
    return {bytes("reduce_scatter"), bytes("all_gather")};
  }
  bool operator==(const StepBytes& other) const {
    const auto all = [](const StepBytes& one) {
      return std::array{one.reduced.inner, one.reduced.outer, one.gathered.inner, one.gathered.outer};
    };
    return all(*this) == all(other);
  }
  friend std::ostream& operator<<(std::ostream& out, const StepBytes& bytes) {
    return out << "reduced " << bytes.reduced.inner << " + " << bytes.reduced.outer << ", gathered "
               << bytes.gathered.inner << " + " << bytes.gathered.outer;
  }
};

/// By the formulas of the schemes, in fp32, for the units in whose group the rank has a number. Where ranks have
/// different components, weights are gathered anew for each use.
inline StepBytes bytes_by_formula(Rank& rank, const plan::PlanShape& units, const Training& training,
                                  std::int64_t accumulation,
                                  const std::function<std::optional<int>(std::size_t unit)>& rank_in) {
  StepBytes sent;
  const std::int64_t times = training.order == plan::AccumulationOrder::breadth_first ? 1 : accumulation;
  std::vector<std::size_t> rotating;
  for (const std::vector<std::size_t>& read : units.visit_units)
    if (units.rotates[read.front()]) rotating.push_back(read.front());
  for (std::size_t u = 0; u < units.rotates.size(); ++u) {
    const std::optional<int> me = rank_in(u);
    if (!me) continue;
    const partition::FlatSpace& space = rank.model().units()[u].space();
    const comm::Traffic::Bytes reduce = comm::reduce_scatter_bytes(space, *me, 4, 4),
                               gather = comm::all_gather_bytes(space, *me, 4);
    const bool turns = units.rotates[u];
    const std::int64_t reduces = turns && training.scheme != plan::Scheme::stage_1 ? times : 1;
    std::int64_t gathers = 1;
    if (turns && plan::rotates_weights(training.scheme)) {
      // Forward and backward of each micro-batch; but the last two stay over the turn, the first two over the border
      // between micro-batches.
      const auto place = std::find(rotating.begin(), rotating.end(), u) - rotating.begin();
      gathers = 2 * times - (place + 2 >= std::ssize(rotating) ? times : 0) - (place < 2 ? times - 1 : 0);
      if (rank.model().spec().components.size() > 1) gathers = 2 * accumulation;
    }
    const bool by_level = turns && training.scheme == plan::Scheme::hybrid;
    sent.reduced.inner += reduces * reduce.inner;
    sent.reduced.outer += (by_level ? 1 : reduces) * reduce.outer;
    sent.gathered.inner += gathers * gather.inner;
    sent.gathered.outer += (by_level ? 1 : gathers) * gather.outer;
  }
  return sent;
}

}  // namespace argosy::test
