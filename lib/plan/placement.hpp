#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "partition/flat_space.hpp"
#include "spec/model_spec.hpp"

/// Which ranks train which tasks of a model whose stacks only some of these share, and so hold which components. Pure.
namespace argosy::plan {

/// The section `placement`: "everywhere", "auto", or the canonical ranks of each task.
struct PlacementConfig {
  bool is_auto = false;
  std::map<std::string, std::vector<int>> tasks{};  // with neither: everywhere
  /// Throws Error{config}.
  [[nodiscard]] static PlacementConfig parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static boost::json::value schema();
  [[nodiscard]] bool is_everywhere() const { return !is_auto && tasks.empty(); }
};

/// Canonical ranks, ascending. Empty lists: everywhere.
struct Placement {
  std::vector<std::vector<int>> routes{};      // by route: its ranks
  std::vector<std::vector<int>> components{};  // by component: those of the routes that pass it; empty: all ranks
  [[nodiscard]] bool is_everywhere() const noexcept { return routes.empty(); }
  /// The ranks that have a component; empty: all.
  [[nodiscard]] const std::vector<int>& members(std::size_t component) const;
  /// The place of a rank among the members of a component, or -1.
  [[nodiscard]] int rank_in(std::size_t component, int canonical_rank) const;
  [[nodiscard]] partition::Layout layout_of(std::size_t component, const partition::Layout& all) const;
  /// Components that a rank does not have.
  [[nodiscard]] std::set<std::size_t> absent(int canonical_rank) const;
  /// The different sets of ranks that have components, without that of all ranks.
  [[nodiscard]] std::set<std::vector<int>> groups() const;
  /// Of the rank that is in most of them, how many of these sets.
  [[nodiscard]] int most_groups_of_a_rank() const;
  bool operator==(const Placement&) const = default;
};

/// Each set of ranks that share components needs communicators of its own, of which MPI has a limited number. A rank
/// may be in at most so many, and should be in fewer.
inline constexpr int most_groups = 200, usual_groups = 64;

/// routes: by route, its ranks, ascending, of `world`. Where all have all ranks, the result is everywhere.
[[nodiscard]] Placement placement_of(const spec::ModelSpec& spec, std::vector<std::vector<int>> routes, int world);

/// That of a list of ranks for each task. Throws Error{config} for a rank that the world does not have, and for a rank
/// without a task.
[[nodiscard]] Placement placement_of(const spec::ModelSpec& spec, const PlacementConfig& config, int world);

/// What a step costs a rank that has all of it: seconds.
struct PlacementCosts {
  std::vector<double> routes{};              // by route: computing its micro-batches of a step
  std::vector<std::int64_t> bytes{};         // by component: held by a rank, in all
  std::vector<std::int64_t> shared_bytes{};  // by component: the part that is divided among the ranks that have it
  std::vector<double> inner_s{}, outer_s{};  // by component: of moving it inside a node, and between nodes
  /// How many micro-batches a step has, and their shares by route. 0: work can be divided as one likes.
  int micro_batches = 0;
  std::vector<double> shares{};
  bool in_order = false;            // data::DealSettings::in_order
  std::int64_t capacity_bytes = 0;  // of a rank, for what it holds; 0: unknown
};

/// How good a placement is: it fits, then the less time, then the less memory, the better.
struct PlacementScore {
  std::int64_t missing_bytes = 0;  // that the fullest rank holds beyond its capacity
  double step_s = 0;               // of the rank that takes longest
  std::int64_t most_bytes = 0;     // of the rank that holds most
  auto operator<=>(const PlacementScore&) const = default;
};
/// The work of a route is divided over its ranks as its micro-batches are dealt; evenly, where their number is unknown.
[[nodiscard]] PlacementScore score_of(const Placement& placement, const spec::ModelSpec& spec,
                                      const PlacementCosts& costs, const partition::Layout& layout);

/// Lays the routes on a line, one behind the other with the length of their cost, and cuts it into as many equal parts
/// as there are ranks: each computes what lies in its part (McNaughton, 1959). Starts with neighbours that share
/// components, and exchanges routes, with a fixed seed, while the score becomes better. Everywhere and round robin are
/// candidates as well. Deterministic.
[[nodiscard]] Placement search_placement(const spec::ModelSpec& spec, const PlacementCosts& costs,
                                         const partition::Layout& layout);

/// Steps whose micro-batches have routes by their shares, as they are dealt to the ranks.
struct TypicalStep {
  int slots = 1;                      // of the busiest step: micro-batches of the rank that has most
  double idle_share = 0;              // of all ranks' slots: those without a micro-batch
  std::vector<double> idle_shares{};  // by rank: of its slots
  /// Of the busiest step, by route and rank (Placement::routes): the part of the route's micro-batches that the rank
  /// computes.
  std::vector<std::vector<double>> shares{};
};
/// shares: of the micro-batches, by route. Not everywhere.
[[nodiscard]] TypicalStep typical_step(const Placement& placement, const std::vector<double>& shares, int micro_batches,
                                       int world, bool in_order);

/// Routes dealt to ranks one after the other.
[[nodiscard]] Placement round_robin(const spec::ModelSpec& spec, int world);

}  // namespace argosy::plan
