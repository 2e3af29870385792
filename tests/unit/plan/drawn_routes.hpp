#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "plan/step_plan.hpp"

namespace argosy::test {

/// A drawn model of `tasks` tasks: a tied embedding (unit 0), or one for each language next to a unit of all (unit 0),
/// and stacks of which each has components of its own blocks.
struct Drawn {
  plan::PlanShape shape;
  std::vector<std::vector<std::size_t>> route_of_slot;  // by slot and rank; past the routes: none
  int ranks = 1;
};

inline Drawn draw(std::uint64_t seed, int slots) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Drawn drawn;
  plan::PlanShape& shape = drawn.shape;
  const std::size_t tasks = 2 + below(4);
  shape.rotates = {false};
  shape.components = {0};
  shape.routes.assign(tasks, {});
  std::size_t component = 0;
  const auto visit_of_all = [&](std::size_t unit) {
    for (auto& route : shape.routes) route.push_back(shape.visit_units.size());
    shape.visit_units.push_back({unit});
  };
  const std::size_t languages = below(2) == 0 ? 0 : 2 + below(2);
  for (std::size_t language = 0; language < languages; ++language) {
    shape.rotates.push_back(false);
    shape.components.push_back(++component);
  }
  const auto embed = [&](bool source) {  // or the output
    if (languages == 0) return visit_of_all(0);
    for (std::size_t language = 0; language < languages; ++language) {
      for (std::size_t task = 0; task < tasks; ++task)
        if ((task + (source ? 0 : 1 + task / languages)) % languages == language)
          shape.routes[task].push_back(shape.visit_units.size());
      shape.visit_units.push_back({1 + language, 0});
    }
  };
  embed(true);
  for (int side = 0; side < 2; ++side) {
    for (std::size_t stacks = 1 + below(2); stacks > 0; --stacks) {
      const std::size_t copies = 1 + below(tasks), layers = 1 + below(2);
      for (std::size_t copy = 0; copy < copies; ++copy) {
        const std::size_t of = copies == 1 ? 0 : ++component;
        for (std::size_t layer = 0; layer < layers; ++layer) {
          const std::size_t unit = shape.rotates.size();
          shape.rotates.push_back(true);
          shape.components.push_back(of);
          if (below(8) == 0) shape.frozen.insert(unit);
          for (std::size_t task = 0; task < tasks; ++task)
            if (task % copies == copy) shape.routes[task].push_back(shape.visit_units.size());
          shape.visit_units.push_back({unit});
        }
      }
    }
    embed(false);
  }
  drawn.ranks = 1 + static_cast<int>(below(4));
  drawn.route_of_slot.resize(static_cast<std::size_t>(slots));
  for (auto& slot : drawn.route_of_slot)
    for (int rank = 0; rank < drawn.ranks; ++rank) slot.push_back(below(8) == 0 ? tasks : below(tasks));
  return drawn;
}

inline std::vector<plan::PlanChoices> all_schemes(int slots) {
  using plan::AccumulationOrder, plan::ReduceEvery, plan::Scheme;
  std::vector<plan::PlanChoices> all;
  for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
    for (const auto order : {AccumulationOrder::depth_first, AccumulationOrder::breadth_first})
      all.push_back({scheme, order, ReduceEvery::step, slots});
    if (scheme != Scheme::hybrid)
      all.push_back({scheme, AccumulationOrder::depth_first, ReduceEvery::micro_batch, slots});
  }
  return all;
}

inline std::vector<plan::SlotRoutes> slots_of(const Drawn& drawn, int rank) {
  std::vector<plan::SlotRoutes> slots;
  for (const auto& routes : drawn.route_of_slot) {
    plan::SlotRoutes& slot = slots.emplace_back();
    for (std::size_t r = 0; r < routes.size(); ++r) {
      if (routes[r] == drawn.shape.routes.size()) continue;
      slot.all.insert(routes[r]);
      if (static_cast<int>(r) == rank) slot.own = routes[r];
    }
  }
  return slots;
}

}  // namespace argosy::test
