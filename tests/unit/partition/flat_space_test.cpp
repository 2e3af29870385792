#include "partition/flat_space.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "unit/partition/small_layouts.hpp"

namespace argosy::partition {
namespace {

/// Runs `check(space)` for every small unit on every small layout.
template <class Check>
void for_each_space(Check check) {
  for (const Layout& layout : test::small_layouts())
    for (const std::vector<ParamSpec>& unit : test::small_units()) check(FlatSpace{unit, layout});
}

TEST(FlatSpace, EverySliceHasOneOwnerAndWholeBlocks) {
  for_each_space([](const FlatSpace& space) {
    EXPECT_EQ(space.slices(), space.layout().nodes() * space.layout().slots());
    EXPECT_EQ(space.slice_size() % unit_alignment, 0);
    EXPECT_EQ(space.slice_size() * space.slices(), space.padded_size());
    std::int64_t owned = 0;
    for (int rank = 0; rank < space.layout().world(); ++rank) {
      const std::vector<int> slices = space.owned_slices(rank);
      EXPECT_TRUE(std::is_sorted(slices.begin(), slices.end()));
      EXPECT_EQ(space.owned_size(rank), static_cast<std::int64_t>(slices.size()) * space.slice_size());
      for (const int slice : slices) EXPECT_EQ(space.owner(slice), rank);
      owned += space.owned_size(rank);
    }
    EXPECT_EQ(owned, space.padded_size());
  });
}

TEST(FlatSpace, SubSliceOfASlotBelongsToItsNodeAndThereToTheOwnerOfTheSlot) {
  for_each_space([](const FlatSpace& space) {
    const std::vector<int>& sizes = space.layout().node_sizes();
    const int nodes = static_cast<int>(sizes.size()), slots = *std::max_element(sizes.begin(), sizes.end());
    for (int slot = 0; slot < slots; ++slot) {
      int earlier_ranks = 0;
      for (int node = 0; node < nodes; ++node) {
        const int here = sizes[static_cast<std::size_t>(node)], slice = slot * nodes + node;
        EXPECT_EQ(space.slice_begin(slice), slice * space.padded_size() / (nodes * slots));
        EXPECT_EQ(space.owner(slice), earlier_ranks + slot * here / slots);
        earlier_ranks += here;
      }
    }
  });
}

TEST(FlatSpace, NodesOwnEqualSharesAndNoRankMoreThanThePlannerCounts) {
  for_each_space([](const FlatSpace& space) {
    const Layout& layout = space.layout();
    const int smallest = *std::min_element(layout.node_sizes().begin(), layout.node_sizes().end());
    const std::int64_t most_slots = (layout.slots() + smallest - 1) / smallest;
    std::int64_t fullest = 0;
    for (int node = 0; node < layout.nodes(); ++node) {
      std::int64_t owned = 0;
      for (int local = 0; local < layout.node_size(node); ++local) {
        const std::int64_t size = space.owned_size(layout.canonical_rank(node, local));
        owned += size;
        fullest = std::max(fullest, size);
      }
      EXPECT_EQ(owned * layout.nodes(), space.padded_size());
    }
    EXPECT_EQ(fullest, most_slots * space.padded_size() / (layout.nodes() * layout.slots()));
  });
}

TEST(FlatSpace, ParametersAreAlignedDoNotOverlapAndPaddingIsLessThanOneRound) {
  for_each_space([](const FlatSpace& space) {
    std::int64_t end = 0, parameters = 0;
    for (std::size_t i = 0; i < space.params().size(); ++i) {
      EXPECT_EQ(space.offset(i) % unit_alignment, 0);
      EXPECT_GE(space.offset(i), end);
      EXPECT_LT(space.offset(i) - end, unit_alignment);
      end = space.offset(i) + space.params()[i].numel();
      parameters += space.params()[i].numel();
    }
    EXPECT_EQ(std::tuple(space.used_size(), space.parameters()), std::tuple(end, parameters));
    EXPECT_GE(space.padded_size(), end);
    EXPECT_LT(space.padded_size() - end, space.slices() * unit_alignment);
  });
}

TEST(FlatSpace, NoDecayComesFirstElseInTheOrderGiven) {
  const FlatSpace space{{{"w1", {300}, true}, {"b1", {300}, false}, {"w2", {10}, true}, {"b2", {10}, false}}, Layout{}};
  std::vector<std::string> names;
  for (const ParamSpec& param : space.params()) names.push_back(param.name);
  EXPECT_EQ(names, (std::vector<std::string>{"b1", "b2", "w1", "w2"}));
  EXPECT_EQ(space.offset(1), 512);
  EXPECT_EQ(space.decay_begin(), 768);
  EXPECT_EQ(space.index_of("w2"), 3U);
  EXPECT_THROW((void)space.index_of("w3"), Error);
}

TEST(FlatSpace, DecayBeginsAtTheEndWithoutAParameterThatDecays) {
  const FlatSpace none{{{"b", {10}, false}}, Layout{}}, all{{{"w", {10}, true}}, Layout{}};
  EXPECT_EQ(none.decay_begin(), none.padded_size());
  EXPECT_EQ(all.decay_begin(), 0);
}

TEST(FlatSpace, ABiasOf1600OnThreeRanksIsPaddedNotCutUnevenly) {
  const FlatSpace space{{{"bias", {1600}, false}}, Layout{{3}}};
  EXPECT_EQ(std::tuple(space.padded_size(), space.owned_size(2)), std::tuple(2304, 768));
}

TEST(FlatSpace, GatheringBothLevelsInPlaceReconstructsTheUnit) {
  for_each_space([](const FlatSpace& space) {
    const Layout& layout = space.layout();
    const std::int64_t size = space.slice_size();
    // by rank: the unit's buffer, holding the own slices only
    std::vector<std::vector<int>> flat;
    for (int rank = 0; rank < layout.world(); ++rank) {
      flat.emplace_back(static_cast<std::size_t>(space.slices()), -1);
      for (const int slice : space.owned_slices(rank)) flat.back()[static_cast<std::size_t>(slice)] = slice;
    }
    const auto move = [&](int from, int to, int first_slice, int count) {
      for (int slice = first_slice; slice < first_slice + count; ++slice) {
        ASSERT_EQ(space.slice_begin(slice), slice * size);
        ASSERT_EQ(flat[static_cast<std::size_t>(from)][static_cast<std::size_t>(slice)], slice);
        flat[static_cast<std::size_t>(to)][static_cast<std::size_t>(slice)] = slice;
      }
    };
    for (int slot = 0; slot < layout.slots(); ++slot) {  // outer: the slot's sub-slices are neighbours
      for (int node = 0; node < layout.nodes(); ++node) {
        const int to = layout.canonical_rank(node, layout.slot_owner(node, slot));
        for (int other = 0; other < layout.nodes(); ++other)
          move(layout.canonical_rank(other, layout.slot_owner(other, slot)), to, slot * layout.nodes() + other, 1);
      }
    }
    for (int rank = 0; rank < layout.world(); ++rank) {  // inner: whole slots
      const int node = layout.node_of(rank);
      for (int slot = 0; slot < layout.slots(); ++slot)
        move(layout.canonical_rank(node, layout.slot_owner(node, slot)), rank, slot * layout.nodes(), layout.nodes());
    }
    for (const std::vector<int>& unit : flat) EXPECT_EQ(std::count(unit.begin(), unit.end(), -1), 0);
  });
}

TEST(FlatSpace, OfSomeRanksHasTheirOwnersInTheNumberingOfAll) {
  const Layout all{{2, 3, 1}};
  const std::vector<int> members{1, 2, 4};
  for (const auto& unit : test::small_units()) {
    const FlatSpace own(unit, all.part(members)), among = own.among(members, all.world());
    EXPECT_EQ(among.world(), 6);
    EXPECT_EQ(among.members(), members);
    EXPECT_EQ(among.padded_size(), own.padded_size());
    EXPECT_FALSE(have_equal_owners(among, own));
    EXPECT_TRUE(have_equal_owners(among, own.among(members, all.world())));
    for (int rank = 0, i = 0; rank < all.world(); ++rank) {
      const bool is_member = i < 3 && members[static_cast<std::size_t>(i)] == rank;
      EXPECT_EQ(among.owned_slices(rank), is_member ? own.owned_slices(i) : std::vector<int>{});
      EXPECT_EQ(among.owned_before(among.padded_size())[static_cast<std::size_t>(rank)],
                is_member ? own.owned_size(i) : 0);
      auto expected = is_member ? intervals_of(own, i) : std::vector<Interval>{};
      for (Interval& interval : expected) interval.rank = rank;
      EXPECT_EQ(intervals_of(among, rank), expected);
      i += is_member ? 1 : 0;
    }
    EXPECT_EQ(intervals_of(among).size(), intervals_of(own).size());
    EXPECT_THROW((void)own.among({1, 2}, 6), Error);
    EXPECT_THROW((void)own.among({1, 2, 6}, 6), Error);
  }
}

TEST(Intervals, HoldEveryElementOnceAtItsPlaceInTheShard) {
  for_each_space([](const FlatSpace& space) {
    // element of the flat space → how often an interval names it; checked against owner and place computed one by one
    std::vector<int> seen(static_cast<std::size_t>(space.padded_size()), 0);
    std::vector<Interval> by_rank;
    for (int rank = 0; rank < space.layout().world(); ++rank) {
      const std::vector<int> slices = space.owned_slices(rank);
      for (const Interval& interval : intervals_of(space, rank)) {
        by_rank.push_back(interval);
        ASSERT_EQ(interval.rank, rank);
        ASSERT_LT(interval.begin, interval.end);
        for (std::int64_t i = interval.begin; i < interval.end; ++i) {
          const std::int64_t at = space.offset(interval.param) + i;
          const std::int64_t local = interval.local_offset + i - interval.begin;
          const int slice = slices.at(static_cast<std::size_t>(local / space.slice_size()));
          ASSERT_EQ(space.slice_begin(slice) + local % space.slice_size(), at);
          ++seen[static_cast<std::size_t>(at)];
        }
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), space.parameters());
    EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](int n) { return n > 1; }), 0);
    std::vector<Interval> all = intervals_of(space);
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    std::sort(by_rank.begin(), by_rank.end());
    EXPECT_EQ(all, by_rank);
  });
}

TEST(Intervals, NeighboursAreJoined) {
  const FlatSpace alone{{{"w", {5000}}}, Layout{}};
  EXPECT_EQ(intervals_of(alone), (std::vector<Interval>{{0, 0, 5000, 0, 0}}));
  const FlatSpace uneven{{{"w", {6 * 256}}}, Layout{{1, 3}}};  // node 0's only rank owns slices 0, 2, 4
  EXPECT_EQ(intervals_of(uneven, 0),
            (std::vector<Interval>{{0, 0, 256, 0, 0}, {0, 512, 768, 0, 256}, {0, 1024, 1280, 0, 512}}));
}

}  // namespace
}  // namespace argosy::partition
