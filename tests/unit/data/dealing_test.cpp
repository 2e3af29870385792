#include "data/dealing.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace argosy::test {
namespace {

using data::deal, data::Dealt, data::DealSettings;

/// Drawn routes of a step, and the ranks of each route; each rank has a route.
struct Drawn {
  std::vector<int> routes;
  DealSettings settings;
};

Drawn draw(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Drawn drawn;
  const std::size_t world = 1 + below(5), routes = 1 + below(5);
  drawn.settings.world = static_cast<int>(world);
  drawn.settings.ranks.resize(routes);
  for (std::vector<int>& ranks : drawn.settings.ranks) {
    for (int rank = 0; rank < static_cast<int>(world); ++rank)
      if (below(2) == 0) ranks.push_back(rank);
    if (ranks.empty()) ranks.push_back(static_cast<int>(below(world)));
  }
  for (std::size_t j = below(3 * world); j > 0; --j)
    drawn.routes.push_back(below(8) == 0 ? -1 : static_cast<int>(below(routes)));
  return drawn;
}

/// The fewest micro-batches of the rank that has most, by trying: whether all fit in `most` each.
bool fits(const Drawn& drawn, std::size_t j, std::vector<int>& left) {
  if (j == drawn.routes.size()) return true;
  if (drawn.routes[j] < 0) return fits(drawn, j + 1, left);
  for (const int rank : drawn.settings.ranks[static_cast<std::size_t>(drawn.routes[j])]) {
    int& own = left[static_cast<std::size_t>(rank)];
    if (own == 0) continue;
    --own;
    if (fits(drawn, j + 1, left)) return true;
    ++own;
  }
  return false;
}

TEST(Dealing, EverywhereGoesRoundTheRanks) {
  EXPECT_EQ(deal(std::vector<int>{0, 2, 1, -1, 0}, {.world = 2}), (Dealt{{0, 1}, {2, 3}, {4, -1}}));
  EXPECT_EQ(deal(std::vector<int>{0}, {.world = 3}), (Dealt{{0, -1, -1}}));
  EXPECT_TRUE(deal({}, {.world = 3}).empty());
}

TEST(Dealing, GivesEachMicroBatchToOneRankOfItsRouteInAscendingOrder) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    for (const bool in_order : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (in_order ? ", in order" : ""));
      Drawn drawn = draw(seed);
      drawn.settings.in_order = in_order;
      std::vector<int> seen, last(static_cast<std::size_t>(drawn.settings.world), -1);
      for (const std::vector<int>& slot : deal(drawn.routes, drawn.settings)) {
        ASSERT_EQ(slot.size(), last.size());
        EXPECT_THAT(slot, testing::Contains(testing::Ge(0))) << "a slot without a micro-batch";
        for (std::size_t rank = 0; rank < slot.size(); ++rank) {
          if (slot[rank] < 0) continue;
          seen.push_back(slot[rank]);
          EXPECT_GT(slot[rank], std::exchange(last[rank], slot[rank]));
          EXPECT_THAT(
              drawn.settings.ranks[static_cast<std::size_t>(drawn.routes[static_cast<std::size_t>(slot[rank])])],
              testing::Contains(static_cast<int>(rank)));
        }
      }
      EXPECT_TRUE(!in_order || std::ranges::is_sorted(seen));
      std::ranges::sort(seen);
      std::vector<int> wanted;
      for (std::size_t j = 0; j < drawn.routes.size(); ++j)
        if (drawn.routes[j] >= 0) wanted.push_back(static_cast<int>(j));
      EXPECT_EQ(seen, wanted);
    }
  }
}

TEST(Dealing, NoOtherWayLeavesTheBusiestRankLess) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Drawn drawn = draw(seed);
    const auto slots = static_cast<int>(deal(drawn.routes, drawn.settings).size());
    std::vector<int> left(static_cast<std::size_t>(drawn.settings.world), slots - 1);
    EXPECT_TRUE(slots == 0 || !fits(drawn, 0, left)) << "seed " << seed;
  }
}

TEST(Dealing, OrderNeedsNoMoreSlotsThanItMust) {
  // Rank 0 first, then rank 1, then again rank 0: two slots, though both ranks could have one and two at a time.
  const DealSettings settings{.world = 2, .ranks = {{0}, {1}}, .in_order = true};
  EXPECT_EQ(deal(std::vector<int>{0, 1, 0}, settings), (Dealt{{0, 1}, {2, -1}}));
  EXPECT_EQ(deal(std::vector<int>{1, 0, 1}, settings), (Dealt{{-1, 0}, {1, 2}}));
}

}  // namespace
}  // namespace argosy::test
