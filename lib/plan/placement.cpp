#include "plan/placement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "data/dealing.hpp"

namespace argosy::plan {

namespace json = boost::json;

PlacementConfig PlacementConfig::parse(std::string_view text) {
  const auto refuse = [&] {
    throw Error{
        Fault::config,
        {.wanted = R"(everywhere, auto, or the ranks of each task: {"en-fr": [0, 1], …})", .got = std::string(text)}};
  };
  PlacementConfig config;
  if (text == "everywhere") return config;
  config.is_auto = text == "auto";
  if (config.is_auto) return config;
  boost::system::error_code bad;
  const json::value value = json::parse(text, bad);
  if (bad || !value.is_object() || value.get_object().empty()) refuse();
  for (const auto& [task, ranks] : value.get_object()) {
    if (!ranks.is_array() || ranks.get_array().empty()) refuse();
    std::vector<int>& own = config.tasks[std::string(task)];
    for (const json::value& rank : ranks.get_array()) {
      if (!rank.is_int64() || rank.get_int64() < 0 || !std::in_range<int>(rank.get_int64())) refuse();
      own.push_back(narrow<int>(rank.get_int64()));
    }
    std::ranges::sort(own);
    if (std::ranges::adjacent_find(own) != own.end()) refuse();
  }
  return config;
}

std::string PlacementConfig::text() const {
  if (is_auto) return "auto";
  return tasks.empty() ? "everywhere" : json::serialize(json::value_from(tasks));
}

json::value PlacementConfig::schema() {
  const json::value ranks{{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}}}, {"minItems", 1}};
  return {{"anyOf", json::array{{{"enum", {"everywhere", "auto"}}},
                                {{"type", "object"}, {"additionalProperties", ranks}, {"minProperties", 1}}}}};
}

const std::vector<int>& Placement::members(std::size_t component) const {
  static const std::vector<int> all;
  return components.empty() ? all : components[component];
}

int Placement::rank_in(std::size_t component, int canonical_rank) const {
  const std::vector<int>& own = members(component);
  if (own.empty()) return canonical_rank;
  const auto found = std::ranges::lower_bound(own, canonical_rank);
  return found == own.end() || *found != canonical_rank ? -1 : narrow<int>(found - own.begin());
}

partition::Layout Placement::layout_of(std::size_t component, const partition::Layout& all) const {
  const std::vector<int>& own = members(component);
  return own.empty() ? all : all.part(own);
}

std::set<std::size_t> Placement::absent(int canonical_rank) const {
  std::set<std::size_t> components_without;
  for (std::size_t c = 0; c < components.size(); ++c)
    if (rank_in(c, canonical_rank) < 0) components_without.insert(c);
  return components_without;
}

std::set<std::vector<int>> Placement::groups() const {
  std::set<std::vector<int>> groups(components.begin(), components.end());
  groups.erase(std::vector<int>{});
  return groups;
}

int Placement::most_groups_of_a_rank() const {
  std::map<int, int> groups_of;  // by rank
  int most = 0;
  for (const std::vector<int>& members : groups())
    for (const int rank : members) most = std::max(most, ++groups_of[rank]);
  return most;
}

Placement placement_of(const spec::ModelSpec& spec, std::vector<std::vector<int>> routes, int world) {
  const auto has_all = [&](const std::vector<int>& ranks) { return std::ssize(ranks) == world; };
  if (std::ranges::all_of(routes, has_all)) return {};
  Placement placement{.routes = std::move(routes), .components = std::vector<std::vector<int>>(spec.components.size())};
  std::vector<std::set<int>> members(spec.components.size());
  for (std::size_t route = 0; route < placement.routes.size(); ++route)
    for (const std::size_t component : spec.components_on(route))
      members[component].insert(placement.routes[route].begin(), placement.routes[route].end());
  for (std::size_t c = 1; c < members.size(); ++c)
    if (std::ssize(members[c]) < world) placement.components[c].assign(members[c].begin(), members[c].end());
  return placement;
}

Placement placement_of(const spec::ModelSpec& spec, const PlacementConfig& config, int world) {
  if (config.tasks.empty()) return {};
  std::vector<std::set<int>> ranks(spec.routes.size());
  std::set<int> used;
  for (const auto& [task, own] : config.tasks) {
    if (own.back() >= world)
      throw_error(Fault::config, fmt::format("placement.{}", task),
                  fmt::format("ranks from 0 to {}, since the run has {} ranks", world - 1, world),
                  std::to_string(own.back()), "take more ranks, or set placement to auto");
    ranks[spec.route_of.at(task)].insert(own.begin(), own.end());
    used.insert(own.begin(), own.end());
  }
  for (int rank = 0; rank < world; ++rank)
    if (!used.contains(rank))
      throw_error(Fault::config, "placement", fmt::format("a task for each of the {} ranks", world),
                  fmt::format("none for rank {}", rank), "give it a task, take fewer ranks, or set placement to auto");
  std::vector<std::vector<int>> routes;
  routes.reserve(ranks.size());
  for (const std::set<int>& own : ranks) routes.emplace_back(own.begin(), own.end());
  return placement_of(spec, std::move(routes), world);
}

namespace {

/// By route and rank: the part of the route's micro-batches that the rank computes; without any, alike.
std::vector<std::vector<double>> shares_of(const data::Dealt& dealt, const std::vector<int>& routes,
                                           const Placement& placement) {
  std::vector<std::vector<double>> shares;
  for (std::size_t route = 0; route < placement.routes.size(); ++route) {
    const std::vector<int>& ranks = placement.routes[route];
    std::vector<double>& own = shares.emplace_back(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      for (const std::vector<int>& slot : dealt) {
        const int number = slot[static_cast<std::size_t>(ranks[i])];
        if (number >= 0 && routes[static_cast<std::size_t>(number)] == narrow<int>(route)) ++own[i];
      }
    }
    const double sum = std::accumulate(own.begin(), own.end(), 0.0);
    for (double& share : own) share = sum > 0 ? share / sum : 1 / static_cast<double>(own.size());
  }
  return shares;
}

}  // namespace

TypicalStep typical_step(const Placement& placement, const std::vector<double>& shares, int micro_batches, int world,
                         bool in_order) {
  constexpr int steps = 4;
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  TypicalStep busiest{.slots = 0};
  std::vector<double> busy(static_cast<std::size_t>(world));  // by rank: slots with a micro-batch
  double slots = 0;                                           // of all steps
  for (int s = 0; s < steps; ++s) {
    // As data::BatchPlan deals them: by route, each with its share, rounded up in some steps and down in others.
    std::vector<int> routes;
    double done = 0;
    for (std::size_t route = 0; route < shares.size(); ++route) {
      done += shares[route] / all;
      const bool last = route + 1 == shares.size();
      const double end = std::floor(done * micro_batches + static_cast<double>(s) / steps);
      routes.resize(std::max(routes.size(), static_cast<std::size_t>(last ? micro_batches : end)), narrow<int>(route));
    }
    const data::Dealt dealt = data::deal(routes, {.world = world, .ranks = placement.routes, .in_order = in_order});
    slots += static_cast<double>(dealt.size());
    for (const std::vector<int>& slot : dealt)
      for (std::size_t rank = 0; rank < busy.size(); ++rank) busy[rank] += slot[rank] >= 0 ? 1 : 0;
    if (std::ssize(dealt) <= busiest.slots) continue;
    busiest = {.slots = narrow<int>(dealt.size()), .shares = shares_of(dealt, routes, placement)};
  }
  busiest.idle_share = 1 - static_cast<double>(steps) * micro_batches / (world * slots);
  for (const double own : busy) busiest.idle_shares.push_back(1 - own / slots);
  return busiest;
}

Placement round_robin(const spec::ModelSpec& spec, int world) {
  const auto count = narrow<int>(spec.routes.size());
  std::vector<std::vector<int>> routes(spec.routes.size());
  for (int i = 0; i < std::max(world, count); ++i) routes[static_cast<std::size_t>(i % count)].push_back(i % world);
  return placement_of(spec, std::move(routes), world);
}

}  // namespace argosy::plan
