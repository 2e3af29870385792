#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "unit/plan/drawn_routes.hpp"
#include "unit/plan/op_order.hpp"

/// Step plans of models with several routes: the ranks' micro-batches take different ones.
namespace argosy::test {
namespace {

using comm::Levels;
using plan::Op, plan::OpKind, plan::PlanChoices, plan::ReduceEvery, plan::Scheme, plan::SlotRoutes, plan::StepPlan,
    plan::Stream;

/// check(drawn, choices): for many models and steps.
template <class Check>
void for_each_step(const Check& check) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (const int slots : {1, 3}) {
      const Drawn drawn = draw(seed, slots);
      for (const PlanChoices& choices : all_schemes(slots)) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", scheme " + std::to_string(static_cast<int>(choices.scheme)) +
                     ", order " + std::to_string(static_cast<int>(choices.order)) + ", " + std::to_string(slots) +
                     (choices.reduce_every == ReduceEvery::step ? " slots" : " slots, each"));
        check(drawn, choices);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

StepPlan plan_of(const Drawn& drawn, PlanChoices choices, int rank) {
  choices.slots = slots_of(drawn, rank);
  return plan::plan_step(drawn.shape, choices);
}

TEST(Routes, AllRanksHaveTheirCollectivesInOneOrder) {
  for_each_step([](const Drawn& drawn, const PlanChoices& choices) {
    const auto collectives = [&](int rank, Stream stream) {
      std::vector<std::tuple<OpKind, int, Levels, bool>> ops;
      for (const Op& op : plan_of(drawn, choices, rank).ops)
        if (op.stream == stream && op.kind != OpKind::update)
          ops.emplace_back(op.kind, op.unit, op.levels, op.continues);
      return ops;
    };
    for (const Stream stream : {Stream::gather, Stream::reduce})
      for (int rank = 1; rank < drawn.ranks; ++rank)
        ASSERT_EQ(collectives(rank, stream), collectives(0, stream)) << "rank " << rank;
  });
}

TEST(Routes, ARankComputesItsOwnRouteAndAllUpdateWhatAnyTrains) {
  for_each_step([](const Drawn& drawn, const PlanChoices& choices) {
    std::set<int> trained;
    for (const SlotRoutes& slot : slots_of(drawn, -1))
      for (const std::size_t route : slot.all)
        for (const std::size_t visit : drawn.shape.routes[route])
          for (const std::size_t unit : drawn.shape.visit_units[visit])
            if (!drawn.shape.frozen.contains(unit)) trained.insert(static_cast<int>(unit));
    for (int rank = 0; rank < drawn.ranks; ++rank) {
      const StepPlan plan = plan_of(drawn, choices, rank);
      const std::vector<SlotRoutes> slots = slots_of(drawn, rank);
      std::vector<std::vector<std::size_t>> forward(slots.size());
      std::set<int> updated;
      std::map<int, int> last_reduce;  // by unit: its micro-batch
      for (const Op& op : plan.ops) {
        if (op.kind == OpKind::forward)
          forward[static_cast<std::size_t>(op.micro_batch)].push_back(static_cast<std::size_t>(op.visit));
        if (op.kind == OpKind::update) updated.insert(op.unit);
        if (op.kind == OpKind::reduce) last_reduce[op.unit] = op.micro_batch;
      }
      for (std::size_t m = 0; m < slots.size(); ++m)
        ASSERT_EQ(forward[m], slots[m].own ? drawn.shape.routes[*slots[m].own] : std::vector<std::size_t>{});
      ASSERT_EQ(updated, trained);
      for (const auto& [unit, slot] : last_reduce) {
        if (choices.reduce_every == ReduceEvery::micro_batch || slot < 0) continue;
        const auto& visits = drawn.shape.routes[slots[static_cast<std::size_t>(slot)].own.value()];
        ASSERT_TRUE(std::ranges::any_of(visits,
                                        [&](std::size_t visit) {
                                          return std::ranges::count(drawn.shape.visit_units[visit],
                                                                    static_cast<std::size_t>(unit)) > 0;
                                        }))
            << "the micro-batch named has no gradient of unit " << unit;
      }
    }
  });
}

TEST(Routes, NothingReadsWhatIsNotThereOrWritesWhatIsStillRead) {
  for_each_step([](const Drawn& drawn, const PlanChoices& choices) {
    for (int rank = 0; rank < drawn.ranks; ++rank) {
      const StepPlan plan = plan_of(drawn, choices, rank);
      const Order order(plan);
      const auto place = [](int buffer, int unit) { return buffer >= 0 ? std::pair{buffer, -1} : std::pair{-1, unit}; };
      std::map<std::pair<int, int>, std::size_t> filled, reduces;
      std::map<std::pair<int, int>, std::vector<std::size_t>> readers;
      std::map<int, std::vector<std::size_t>> writers;
      std::vector<std::size_t> gathers;
      const auto has_waited = [&](std::size_t for_op, std::size_t at) {  // the host, which starts `at`
        return std::any_of(plan.ops.begin(), plan.ops.begin() + static_cast<std::ptrdiff_t>(at) + 1, [&](const Op& op) {
          return std::ranges::count(op.waits_for, static_cast<int>(for_op)) > 0;
        });
      };
      for (std::size_t i = 0; i < plan.ops.size(); ++i) {
        const Op& op = plan.ops[i];
        const auto weights = place(op.weights, op.unit), gradients = place(op.gradients, op.unit);
        if (op.kind == OpKind::gather && op.levels != Levels::outer) {
          gathers.push_back(i);
          for (const std::size_t reader : readers[weights]) ASSERT_TRUE(order.is_before(reader, i));
          // The rank's own slice is written before the gather starts.
          ASSERT_TRUE(!filled.contains(weights) || has_waited(filled[weights], i));
          readers[weights].clear();
          filled[weights] = i;
        } else if (op.kind == OpKind::forward || op.kind == OpKind::backward) {
          const bool is_complete = drawn.shape.frozen.contains(static_cast<std::size_t>(op.unit)) && op.weights < 0;
          if (!is_complete) {
            ASSERT_TRUE(filled.contains(weights));
            ASSERT_EQ(plan.ops[filled[weights]].unit, op.unit) << "reads another unit's weights";
            ASSERT_TRUE(order.is_before(filled[weights], i));
            readers[weights].push_back(i);
          }
          const bool is_head = std::ranges::any_of(drawn.shape.routes, [&](const std::vector<std::size_t>& route) {
            return route.back() == static_cast<std::size_t>(op.visit);
          });  // it writes a gradient in its forward pass
          const bool writes = op.kind == OpKind::backward || is_head;
          if (!writes || drawn.shape.frozen.contains(static_cast<std::size_t>(op.unit))) continue;
          ASSERT_TRUE(!reduces.contains(gradients) || order.is_before(reduces[gradients], i));
          for (const auto& [unit, since] : writers)
            ASSERT_FALSE(unit != op.unit && !since.empty() && op.gradients >= 0 &&
                         plan.ops[since.front()].gradients == op.gradients)
                << "writes over unit " << unit;
          writers[op.unit].push_back(i);
        } else if (op.kind == OpKind::reduce && op.levels != Levels::outer) {
          for (const std::size_t writer : writers[op.unit]) ASSERT_TRUE(order.is_before(writer, i));
          for (const auto& [unit, since] : writers)
            ASSERT_FALSE(unit != op.unit && !since.empty() && op.gradients >= 0 &&
                         plan.ops[since.front()].gradients == op.gradients)
                << "sums what belongs to unit " << unit;
          const bool is_new = writers[op.unit].empty();  // it sends zeros, which are written first
          ASSERT_TRUE(!is_new || !reduces.contains(gradients) || has_waited(reduces[gradients], i));
          writers[op.unit].clear();
          reduces[gradients] = i;
        } else if (op.kind == OpKind::norm) {
          for (const std::size_t gather : gathers) {
            const bool is_last = filled[place(plan.ops[gather].weights, plan.ops[gather].unit)] == gather;
            ASSERT_TRUE(!is_last || choices.scheme == Scheme::hybrid || order.is_before(gather, i));
          }
        }
      }
      for (const auto& [unit, since] : writers) ASSERT_TRUE(since.empty()) << "unit " << unit << " is not reduced";
    }
  });
}

}  // namespace
}  // namespace argosy::test
