#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "partition/flat_space.hpp"
#include "unit/partition/small_layouts.hpp"

namespace argosy::partition {
namespace {

TEST(Layout, CanonicalRanksCountRanksOfEarlierNodes) {
  const Layout layout{{2, 3, 1}};
  EXPECT_EQ(layout.world(), 6);
  EXPECT_EQ(layout.slots(), 3);
  EXPECT_EQ(layout.canonical_rank(1, 2), 4);
  EXPECT_EQ(layout.canonical_rank(2, 0), 5);
}

TEST(Layout, NodeAndLocalRankInvertTheCanonicalRank) {
  for (const Layout& layout : test::small_layouts())
    for (int rank = 0; rank < layout.world(); ++rank)
      EXPECT_EQ(layout.canonical_rank(layout.node_of(rank), layout.local_rank_of(rank)), rank);
}

TEST(Layout, EverySlotHasOneOwnerANodeAndNoRankIsIdle) {
  for (const Layout& layout : test::small_layouts()) {
    for (int node = 0; node < layout.nodes(); ++node) {
      std::vector<int> owners(static_cast<std::size_t>(layout.slots()), -1);
      for (int local = 0; local < layout.node_size(node); ++local) {
        const std::vector<int> slots = layout.slots_of(layout.canonical_rank(node, local));
        EXPECT_FALSE(slots.empty());
        EXPECT_LE(static_cast<int>(slots.size()),
                  (layout.slots() + layout.node_size(node) - 1) / layout.node_size(node));
        EXPECT_TRUE(std::is_sorted(slots.begin(), slots.end()));
        for (const int slot : slots) {
          EXPECT_EQ(owners[static_cast<std::size_t>(slot)], -1);
          EXPECT_EQ(layout.slot_owner(node, slot), local);
          owners[static_cast<std::size_t>(slot)] = local;
        }
      }
      EXPECT_EQ(std::count(owners.begin(), owners.end(), -1), 0);
    }
  }
}

TEST(Layout, APartHasTheNodesOfItsMembers) {
  const Layout layout{{2, 3, 1}};
  EXPECT_EQ(layout.part(std::vector{0, 3, 4}), (Layout{{1, 2}}));
  EXPECT_EQ(layout.part(std::vector{5}), (Layout{{1}}));
  EXPECT_EQ(layout.part(std::vector{0, 1, 2, 3, 4, 5}), layout);
  EXPECT_THROW((void)layout.part(std::vector{1, 0}), Error);
  EXPECT_THROW((void)layout.part(std::vector{6}), Error);
  EXPECT_THROW((void)layout.part({}), Error);
}

TEST(Layout, RefusesAnEmptyNode) {
  EXPECT_THROW((Layout{{2, 0}}), Error);
  EXPECT_THROW((Layout{std::vector<int>{}}), Error);
}

}  // namespace
}  // namespace argosy::partition
