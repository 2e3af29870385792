#pragma once

#include <span>
#include <vector>

/// Which rank computes which micro-batch of a step. Pure, the same on all ranks.
namespace argosy::data {

/// By slot, then by canonical rank: the number of a micro-batch in its step, or -1: none.
using Dealt = std::vector<std::vector<int>>;

struct DealSettings {
  int world = 1;
  /// By route, the canonical ranks that compute it, ascending. Empty: all ranks compute all routes, and micro-batch j
  /// is that of rank j mod W, slot j div W.
  std::vector<std::vector<int>> ranks{};
  /// Numbers ascend from rank to rank of a slot and from slot to slot, which elastic sums need. Otherwise the rank that
  /// has most micro-batches has as few as can be, and each rank has its own in ascending order.
  bool in_order = false;
};

/// routes: by micro-batch (PoolSource::routes); -1: there is none.
[[nodiscard]] Dealt deal(std::span<const int> routes, const DealSettings& settings);

}  // namespace argosy::data
