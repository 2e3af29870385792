#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/random.hpp"
#include "plan/placement.hpp"

namespace argosy::plan {
namespace {

/// The part of a route's work that a rank computes.
struct Portion {
  int rank;
  double share;
};
using Portions = std::vector<std::vector<Portion>>;  // by route

/// Scores what thousands of candidates do, without allocating for each.
class Scorer {
 public:
  Scorer(const spec::ModelSpec& spec, const PlacementCosts& costs, const partition::Layout& layout)
      : costs_(costs), world_(static_cast<std::size_t>(layout.world())) {
    for (std::size_t route = 0; route < spec.routes.size(); ++route) {
      const std::set<std::size_t> passed = spec.components_on(route);
      passed_.emplace_back(passed.begin(), passed.end());
    }
    for (int rank = 0; rank < layout.world(); ++rank) node_.push_back(layout.node_of(rank));
  }

  [[nodiscard]] std::size_t cost_of_one() const { return costs_.bytes.size() * world_; }

  [[nodiscard]] PlacementScore score(const Portions& portions) {
    seconds_.assign(world_, 0);
    bytes_.assign(world_, 0);
    has_.assign(costs_.bytes.size() * world_, 0);
    std::fill_n(has_.begin(), world_, char{1});  // the first component: all ranks
    for (std::size_t route = 0; route < portions.size(); ++route) {
      for (const auto& [rank, share] : portions[route]) {
        const auto r = static_cast<std::size_t>(rank);
        seconds_[r] += share * costs_.routes[route];
        for (const std::size_t component : passed_[route]) has_[component * world_ + r] = 1;
      }
    }
    for (std::size_t component = 0; component < costs_.bytes.size(); ++component) add(component);
    const std::int64_t most = std::ranges::max(bytes_), capacity = costs_.capacity_bytes;
    return {capacity > 0 ? std::max(std::int64_t{0}, most - capacity) : 0, std::ranges::max(seconds_), most};
  }

 private:
  /// What moving and holding a component costs the ranks that have it.
  void add(std::size_t component) {
    const char* const has = has_.data() + component * world_;
    int nodes = 0, last_node = -1;
    std::int64_t members = 0;
    for (std::size_t rank = 0; rank < world_; ++rank) {
      if (!has[rank]) continue;
      ++members;
      if (node_[rank] != last_node) ++nodes, last_node = node_[rank];
    }
    if (members == 0) return;
    const auto apart = [](double parts) { return (parts - 1) / parts; };
    const double in_node = static_cast<double>(members) / nodes;
    const double moves_s =
        std::max(apart(in_node) * costs_.inner_s[component], apart(nodes) * costs_.outer_s[component]);
    const std::int64_t shared = costs_.shared_bytes[component];
    const std::int64_t held = costs_.bytes[component] - shared + shared / members;
    for (std::size_t rank = 0; rank < world_; ++rank) {
      if (!has[rank]) continue;
      seconds_[rank] += moves_s;
      bytes_[rank] += held;
    }
  }

  const PlacementCosts& costs_;
  const std::size_t world_;
  std::vector<std::vector<std::size_t>> passed_;  // by route: components
  std::vector<int> node_;
  std::vector<double> seconds_;
  std::vector<std::int64_t> bytes_;
  std::vector<char> has_;  // by component and rank
};

/// The routes in this order on a line, cut into equal parts for the ranks. A rank does not take on a route for less
/// than 4 % of its time, if another rank has more of it.
void lay(const std::vector<std::size_t>& order, const std::vector<double>& costs, int world, Portions& portions) {
  constexpr double sliver = 0.04;
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0), part = all > 0 ? all / world : 1;
  double begin = 0;
  for (const std::size_t route : order) {
    std::vector<Portion>& own = portions[route];
    own.clear();
    const double end = begin + costs[route];
    const auto rank_at = [&](double at) {
      return narrow<int>(std::min<std::int64_t>(std::llround(std::floor(at / part)), world - 1));
    };
    const int last = rank_at(end);
    for (int rank = rank_at(begin); rank <= last; ++rank)
      own.push_back({rank, std::min(end, part * (rank + 1)) - std::max(begin, part * rank)});
    const double most = std::ranges::max(own, {}, &Portion::share).share;
    std::erase_if(own, [&](const Portion& portion) { return portion.share < std::min(most, sliver * part); });
    double kept = 0;
    for (const Portion& portion : own) kept += portion.share;
    for (Portion& portion : own) portion.share = kept > 0 ? portion.share / kept : 1. / static_cast<double>(own.size());
    begin = end;
  }
}

/// What each rank computes of each route in a step.
Portions portions_of(const Placement& placement, const spec::ModelSpec& spec, const PlacementCosts& costs, int world) {
  Portions portions(spec.routes.size());
  if (placement.is_everywhere()) {
    // Ranks go on together: what the busiest one has more than its part counts for all.
    const double slots = std::ceil(static_cast<double>(costs.micro_batches) / world);
    const double share = costs.micro_batches > 0 ? slots / costs.micro_batches : 1. / world;
    for (std::vector<Portion>& own : portions)
      for (int rank = 0; rank < world; ++rank) own.push_back({rank, share});
    return portions;
  }
  TypicalStep step;
  if (costs.micro_batches > 0) step = typical_step(placement, costs.shares, costs.micro_batches, world, costs.in_order);
  for (std::size_t route = 0; route < portions.size(); ++route) {
    const std::vector<int>& ranks = placement.routes[route];
    for (std::size_t i = 0; i < ranks.size(); ++i)
      portions[route].push_back(
          {ranks[i], step.shares.empty() ? 1. / static_cast<double>(ranks.size()) : step.shares[route][i]});
  }
  return portions;
}

std::vector<std::vector<int>> ranks_of(const Portions& portions) {
  std::vector<std::vector<int>> routes;
  for (const std::vector<Portion>& own : portions) {
    std::vector<int>& ranks = routes.emplace_back();
    for (const Portion& portion : own) ranks.push_back(portion.rank);
  }
  return routes;
}

}  // namespace

PlacementScore score_of(const Placement& placement, const spec::ModelSpec& spec, const PlacementCosts& costs,
                        const partition::Layout& layout) {
  return Scorer(spec, costs, layout).score(portions_of(placement, spec, costs, layout.world()));
}

Placement search_placement(const spec::ModelSpec& spec, const PlacementCosts& costs, const partition::Layout& layout) {
  constexpr double most_work = 4e8, most_dealt = 1e5;  // of the search: about a second; of a candidate that is dealt
  const int world = layout.world();
  const std::size_t routes = spec.routes.size();
  Scorer scorer(spec, costs, layout);
  Portions portions(routes);
  // Where a rank has few micro-batches, those decide; where it has many, work can be divided as one likes.
  const double dealt = static_cast<double>(costs.micro_batches) * world;
  const bool deals = dealt > 0 && dealt <= most_dealt;
  std::vector<std::size_t> best(routes);
  std::optional<PlacementScore> best_score;
  const auto offer = [&](const std::vector<std::size_t>& order) {
    lay(order, costs.routes, world, portions);
    const PlacementScore score =
        scorer.score(deals ? portions_of(placement_of(spec, ranks_of(portions), world), spec, costs, world) : portions);
    if (best_score && !(score < *best_score)) return;
    best = order;
    best_score = score;
  };
  std::vector<std::size_t> order(routes);
  std::iota(order.begin(), order.end(), std::size_t{0});
  offer(order);
  // Those that share components of the encoder next to each other, then those of the decoder.
  const auto neighbours = [&](bool last_first) {
    std::vector<std::vector<std::size_t>> keys;
    for (std::size_t route = 0; route < routes; ++route) {
      const std::set<std::size_t> passed = spec.components_on(route);
      std::vector<std::size_t>& key = keys.emplace_back(passed.begin(), passed.end());
      if (last_first) std::ranges::reverse(key);
    }
    std::ranges::stable_sort(order, {}, [&](std::size_t route) { return keys[route]; });
    offer(order);
  };
  neighbours(false);
  neighbours(true);
  const double work = static_cast<double>(scorer.cost_of_one() + 8 * (routes + static_cast<std::size_t>(world))) +
                      (deals ? 100 * dealt + 5e4 : 0);
  const auto tries = routes < 2 ? 0 : static_cast<std::int64_t>(std::min(20'000.0, most_work / work));
  RandomStream random{1, 0x504c4143};
  for (std::int64_t i = 0; i < tries; ++i) {
    order = best;
    const std::size_t from = random.below(routes), to = random.below(routes);
    if (from == to) continue;
    if (random.below(2) == 0) {
      std::swap(order[from], order[to]);
    } else {
      const std::size_t moved = order[from];
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), moved);
    }
    offer(order);
  }
  lay(best, costs.routes, world, portions);
  Placement chosen;  // everywhere
  PlacementScore least = score_of(chosen, spec, costs, layout);
  const auto take_if_better = [&](Placement other, const PlacementScore& score) {
    if (!(score < least)) return;
    least = score;
    chosen = std::move(other);
  };
  Placement found = placement_of(spec, ranks_of(portions), world), in_turn = round_robin(spec, world);
  const PlacementScore of_found = costs.micro_batches > 0 ? score_of(found, spec, costs, layout) : *best_score;
  take_if_better(std::move(found), of_found);
  const PlacementScore of_turns = score_of(in_turn, spec, costs, layout);
  take_if_better(std::move(in_turn), of_turns);
  return chosen;
}

}  // namespace argosy::plan
