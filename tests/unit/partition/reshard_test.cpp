#include "partition/reshard.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "support/refusal.hpp"
#include "unit/partition/small_layouts.hpp"

namespace argosy::partition {
namespace {

using testing::HasSubstr;

/// Where a block of unit_alignment elements of a parameter lies: slices end between blocks only.
struct Place {
  int rank = 0;
  std::int64_t offset = 0;
  auto operator<=>(const Place&) const = default;
};

using Places = std::vector<std::pair<Place, Place>>;

/// Where every `step`-th element that is read comes from and goes to.
Places sorted_places(const std::vector<Read>& reads, std::int64_t step) {
  Places places;
  for (const Read& piece : reads) {
    for (std::int64_t i = 0; i < piece.length; i += step)
      places.push_back(
          {{piece.source_rank, piece.source_offset + i}, {piece.destination_rank, piece.destination_offset + i}});
  }
  std::sort(places.begin(), places.end());
  return places;
}

/// Places by parameter and block, straight from the definition of ownership.
std::vector<std::vector<Place>> places_of(const FlatSpace& space) {
  std::vector<std::vector<Place>> places;
  for (std::size_t param = 0; param < space.params().size(); ++param) {
    places.emplace_back();
    for (std::int64_t i = 0; i < space.params()[param].numel(); i += unit_alignment) {
      const std::int64_t at = space.offset(param) + i;
      const int slice = static_cast<int>(at / space.slice_size()), owner = space.owner(slice);
      const auto earlier = std::count(space.owners().begin(), space.owners().begin() + slice, owner);
      places.back().push_back({owner, earlier * space.slice_size() + at % space.slice_size()});
    }
  }
  return places;
}

TEST(Reshard, BetweenAnyTwoLayoutsMovesEveryBlockFromItsPlaceToItsPlace) {
  struct Stored {
    FlatSpace space;
    std::vector<Interval> intervals;
    std::vector<std::vector<Place>> places;
  };
  for (const std::vector<ParamSpec>& unit : test::small_units()) {
    std::vector<Stored> all;
    for (const Layout& layout : test::small_layouts()) {
      const FlatSpace space{unit, layout};
      all.push_back({space, intervals_of(space), places_of(space)});
    }
    for (const Stored& from : all) {
      for (const Stored& to : all) {
        const std::vector<Move> moves = plan_reshard(from.intervals, to.intervals);
        ASSERT_LE(moves.size(), from.intervals.size() + to.intervals.size());
        Places moved;
        auto move = moves.begin();
        for (std::size_t param = 0; param < to.places.size(); ++param) {
          const std::int64_t numel = to.space.params()[param].numel();
          for (std::int64_t at = 0; at < numel; at = move->begin + move->length, ++move) {
            ASSERT_TRUE(move != moves.end() && move->param == param && move->begin == at && at % unit_alignment == 0);
            for (std::int64_t i = at; i < at + move->length; i += unit_alignment) {
              const auto block = static_cast<std::size_t>(i / unit_alignment);
              const Place source{move->source_rank, move->source_offset + i - at};
              const Place destination{move->destination_rank, move->destination_offset + i - at};
              ASSERT_EQ(source, from.places[param][block]);
              ASSERT_EQ(destination, to.places[param][block]);
              moved.emplace_back(source, destination);
            }
          }
        }
        ASSERT_EQ(move, moves.end());
        std::sort(moved.begin(), moved.end());
        ASSERT_EQ(moved, sorted_places(reads_of(moves), unit_alignment));
      }
    }
  }
}

/// Parameters cut anywhere and dealt to ranks at random, in no order; `places`: where each element lies.
struct RandomCut {
  RandomCut(const std::vector<std::int64_t>& numels, std::mt19937& random) : places(numels.size()) {
    const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
    const int ranks = 1 + below(9), alignment = 1 + below(8), longest = 1 + below(20);
    std::vector<std::int64_t> next(static_cast<std::size_t>(ranks), 0);
    for (std::size_t param = 0; param < numels.size(); ++param) {
      for (std::int64_t begin = 0; begin < numels[param]; begin = intervals.back().end) {
        const std::int64_t end = std::min<std::int64_t>(numels[param], begin + 1 + below(longest));
        const int rank = below(ranks);
        std::int64_t& at = next[static_cast<std::size_t>(rank)];
        if (below(3) == 0) at += alignment - at % alignment;
        intervals.push_back({param, begin, end, rank, at});
        for (; begin < end; ++begin) places[param].push_back({rank, at++});
      }
    }
    std::shuffle(intervals.begin(), intervals.end(), random);
  }
  std::vector<Interval> intervals;
  std::vector<std::vector<Place>> places;
};

TEST(Reshard, RandomPlansMoveEveryElementLikeBruteForce) {
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    std::mt19937 random{seed};
    std::vector<std::int64_t> numels(1 + random() % 4);
    for (std::int64_t& numel : numels) numel = static_cast<std::int64_t>(random() % 60);
    const RandomCut from{numels, random}, to{numels, random};
    const int only = random() % 2 == 0 ? -1 : static_cast<int>(random() % 9);  // one rank's plan, or all of it
    Places expected;
    for (std::size_t param = 0; param < numels.size(); ++param)
      for (std::size_t i = 0; i < to.places[param].size(); ++i) {
        if (only < 0 || to.places[param][i].rank == only)
          expected.emplace_back(from.places[param][i], to.places[param][i]);
      }
    std::vector<Interval> wanted;
    for (const Interval& interval : to.intervals)
      if (only < 0 || interval.rank == only) wanted.push_back(interval);
    const std::size_t bound = from.intervals.size() + wanted.size();
    const std::vector<Move> moves = plan_reshard(from.intervals, std::move(wanted));
    const std::vector<Read> reads = reads_of(moves);
    ASSERT_LE(moves.size(), bound) << "seed " << seed;
    ASSERT_LE(reads.size(), moves.size()) << "seed " << seed;
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(sorted_places(reads, 1), expected) << "seed " << seed;
  }
}

TEST(Reshard, EqualLayoutsReadAParameterInOnePiece) {
  const FlatSpace alone{{{"w", {5000}}, {"v", {700}}}, Layout{}}, spread{{{"w", {5000}}, {"v", {700}}}, Layout{{2, 3}}};
  EXPECT_EQ(reads_of(plan_reshard(intervals_of(alone), intervals_of(alone))).size(), 2U);
  const auto moves = plan_reshard(intervals_of(spread), intervals_of(alone));
  EXPECT_TRUE(std::is_sorted(moves.begin(), moves.end()));
}

TEST(Reshard, ReadsOfNeighboursAreJoined) {
  const std::vector<Move> moves{{0, 0, 256, 3, 512, 1, 0}, {1, 0, 100, 3, 768, 1, 256}, {2, 0, 10, 3, 868, 1, 400}};
  EXPECT_EQ(reads_of(moves), (std::vector<Read>{{3, 512, 0, 356, 1}, {3, 868, 400, 10, 1}}));
}

TEST(Reshard, CoverIsChecked) {
  const std::vector<std::int64_t> numels{300, 0, 20};
  const std::vector<std::string> names{"w", "none", "b"};
  const Interval first{0, 0, 100, 0, 0}, second{0, 100, 300, 1, 0}, last{2, 0, 20, 0, 100};
  const auto verdict = [&](const std::vector<Interval>& intervals) {
    return argosy::test::refusal(Fault::corrupt, [&] { check_cover("c", intervals, numels, names); });
  };
  EXPECT_NO_THROW(check_cover("c", {last, second, first}, numels, names));
  EXPECT_THAT(verdict({first, last}), HasSubstr("lacks element 100 of w"));
  EXPECT_THAT(verdict({second, last}), HasSubstr("lacks element 0 of w"));
  EXPECT_THAT(verdict({first, {0, 90, 300, 1, 0}, last}), HasSubstr("lists element 90 of w twice"));
  EXPECT_THAT(verdict({first, second}), HasSubstr("lacks element 0 of b"));
  EXPECT_THAT(verdict({first, second, last, {3, 0, 1, 0, 0}}), HasSubstr("names parameter number 3"));
  EXPECT_THAT(verdict({first, {0, 100, 310, 1, 0}, last}), HasSubstr("more than the 300 elements of w"));
}

TEST(Reshard, AnElementThatIsNotStoredIsABrokenInvariant) {
  EXPECT_THROW((void)plan_reshard({{0, 0, 10, 0, 0}}, {{0, 0, 20, 0, 0}}), Error);
  EXPECT_THROW((void)plan_reshard({{0, 5, 20, 0, 0}}, {{0, 0, 20, 0, 0}}), Error);
}

}  // namespace
}  // namespace argosy::partition
