#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "data/dealing.hpp"
#include "unit/plan/drawn_routes.hpp"

/// Step plans of ranks that have some of the components: all together end.
namespace argosy::test {
namespace {

using plan::Op, plan::OpKind, plan::PlanChoices, plan::StepPlan, plan::Stream;

/// A drawn model, the ranks of each route, and a step that is dealt to them.
struct Placed {
  Drawn drawn;
  std::vector<std::vector<int>> ranks;               // by route
  std::vector<std::set<std::size_t>> components_of;  // by route
  std::vector<int> routes;                           // by micro-batch
  data::Dealt dealt;

  [[nodiscard]] std::set<std::size_t> absent(int rank) const {
    std::set<std::size_t> without(drawn.shape.components.begin(), drawn.shape.components.end());
    without.erase(0);
    for (std::size_t route = 0; route < ranks.size(); ++route) {
      if (std::ranges::count(ranks[route], rank) == 0) continue;
      for (const std::size_t component : components_of[route]) without.erase(component);
    }
    return without;
  }
};

Placed place(std::uint64_t seed, bool in_order) {
  std::mt19937_64 random(seed + 77);
  Placed placed{.drawn = draw(seed, 1), .ranks = {}, .components_of = {}, .routes = {}, .dealt = {}};
  const plan::PlanShape& shape = placed.drawn.shape;
  const int world = placed.drawn.ranks = 2 + static_cast<int>(random() % 3);
  for (const std::vector<std::size_t>& visits : shape.routes) {
    std::set<std::size_t>& components = placed.components_of.emplace_back();
    for (const std::size_t visit : visits)
      for (const std::size_t unit : shape.visit_units[visit]) components.insert(shape.components[unit]);
    std::vector<int>& ranks = placed.ranks.emplace_back();
    for (int rank = 0; rank < world; ++rank)
      if (random() % 2 == 0) ranks.push_back(rank);
    if (ranks.empty()) ranks.push_back(static_cast<int>(random() % static_cast<unsigned>(world)));
  }
  for (std::size_t j = 1 + random() % (2 * static_cast<std::size_t>(world)); j > 0; --j)
    placed.routes.push_back(static_cast<int>(random() % shape.routes.size()));
  placed.dealt = data::deal(placed.routes, {.world = world, .ranks = placed.ranks, .in_order = in_order});
  return placed;
}

StepPlan plan_of(const Placed& placed, PlanChoices choices, int rank) {
  choices.slots = plan::slots_of(placed.routes, placed.dealt, rank);
  choices.micro_batches = static_cast<int>(choices.slots.size());
  choices.idle = placed.absent(rank);
  return plan::plan_step(placed.drawn.shape, choices);
}

/// Runs the plans of all ranks together. A rank issues its operations in order, and waits where its plan says so. The
/// n-th collective of a stream of a group ends when all of its ranks have issued it. An update may be a sum over the
/// group that the rank waits for, and the norm is one over all ranks. Returns what is wrong.
class Together {
 public:
  Together(const Placed& placed, const PlanChoices& choices) {
    for (int rank = 0; rank < placed.drawn.ranks; ++rank) {
      plans_.push_back(plan_of(placed, choices, rank));
      at_.push_back(0);
      absent_.push_back(placed.absent(rank));
    }
  }
  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < plans_.size(); ++rank)
        while (wrong_.empty() && advance(rank)) moved = true;
    }
    if (!wrong_.empty()) return wrong_;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank)
      if (at_[rank] < plans_[rank].ops.size()) return "rank " + std::to_string(rank) + " waits for ever";
    return "";
  }

 private:
  using Queue = std::tuple<std::size_t, OpKind>;  // group; gather, reduce, update or norm
  struct Collective {
    int unit = -1;
    comm::Levels levels{};
    std::set<std::size_t> issued;
  };

  static OpKind queue_of(const Op& op) {
    if (op.kind == OpKind::to_owners) return OpKind::gather;
    if (op.kind == OpKind::to_shards) return OpKind::reduce;
    return op.kind;
  }
  [[nodiscard]] std::size_t members(std::size_t group) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(absent_, [&](const std::set<std::size_t>& absent) { return !absent.contains(group); }));
  }
  /// Issues op once; whether its collective is over.
  bool issue(std::size_t rank, std::size_t index) {
    const Op& op = plans_[rank].ops[index];
    const OpKind kind = queue_of(op);
    if (kind == OpKind::forward || kind == OpKind::backward) return true;
    const auto [known, is_new] = place_.try_emplace({rank, index}, 0);
    const Queue queue{op.group, kind};
    if (is_new) {
      known->second = issued_[{rank, queue}]++;
      std::vector<Collective>& all = queues_[queue];
      if (all.size() <= known->second) all.push_back({op.unit, op.levels, {}});
      Collective& own = all[known->second];
      if (own.unit != op.unit || own.levels != op.levels) wrong_ = "ranks of a group differ in order";
      own.issued.insert(rank);
    }
    return queues_[queue][known->second].issued.size() == members(op.group);
  }
  bool advance(std::size_t rank) {
    if (at_[rank] == plans_[rank].ops.size()) return false;
    const Op& op = plans_[rank].ops[at_[rank]];
    for (const int waited : op.waits_for)
      if (!issue(rank, static_cast<std::size_t>(waited))) return false;
    const bool over = issue(rank, at_[rank]);
    if ((op.kind == OpKind::norm || op.kind == OpKind::update) && !over) return false;
    ++at_[rank];
    return true;
  }

  std::vector<StepPlan> plans_;
  std::vector<std::size_t> at_;
  std::vector<std::set<std::size_t>> absent_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> place_;  // by rank and op: number in its queue
  std::map<std::pair<std::size_t, Queue>, std::size_t> issued_;
  std::map<Queue, std::vector<Collective>> queues_;
  std::string wrong_;
};

TEST(PlacedPlans, OfAllRanksEndTogether) {
  int partly = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    for (PlanChoices choices : all_schemes(1)) {
      Placed placed = place(seed, choices.reduce_every == plan::ReduceEvery::micro_batch);
      if (seed % 2 == 0)  // matrices that are updated as a whole
        for (std::size_t unit = 0; unit < placed.drawn.shape.rotates.size(); ++unit)
          placed.drawn.shape.whole.insert(unit);
      for (int rank = 0; rank < placed.drawn.ranks; ++rank) partly += placed.absent(rank).empty() ? 0 : 1;
      ASSERT_EQ(Together(placed, choices).run(), "")
          << "seed " << seed << ", scheme " << static_cast<int>(choices.scheme) << ", order "
          << static_cast<int>(choices.order);
    }
  }
  EXPECT_GT(partly, 1000);
}

TEST(PlacedPlans, ARankTouchesItsOwnComponentsAlone) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (const PlanChoices& choices : all_schemes(1)) {
      const Placed placed = place(seed, false);
      for (int rank = 0; rank < placed.drawn.ranks; ++rank) {
        const std::set<std::size_t> absent = placed.absent(rank);
        for (const Op& op : plan_of(placed, choices, rank).ops) {
          if (op.unit < 0) continue;
          ASSERT_FALSE(absent.contains(placed.drawn.shape.components[static_cast<std::size_t>(op.unit)]))
              << "seed " << seed << ", rank " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace argosy::test
