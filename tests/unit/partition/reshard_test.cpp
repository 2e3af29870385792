#include "partition/reshard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.hpp"
#include "unit/partition/small_layouts.hpp"

namespace argosy::partition {
namespace {

using testing::HasSubstr;

/// Shards of a space whose element (param, i) holds 1000000·param + i + 1; padding holds 0.
std::vector<std::vector<std::int64_t>> filled_shards(const FlatSpace& space) {
  std::vector<std::vector<std::int64_t>> shards;
  for (int rank = 0; rank < space.layout().world(); ++rank) {
    shards.emplace_back(static_cast<std::size_t>(space.owned_size(rank)), 0);
  }
  for (std::size_t param = 0; param < space.params().size(); ++param) {
    for (std::int64_t i = 0; i < space.params()[param].numel(); ++i) {
      const std::int64_t at = space.offset(param) + i;
      const int slice = static_cast<int>(at / space.slice_size()), owner = space.owner(slice);
      const std::vector<int> slices = space.owned_slices(owner);
      const std::int64_t place = std::find(slices.begin(), slices.end(), slice) - slices.begin();
      shards[static_cast<std::size_t>(owner)]
            [static_cast<std::size_t>(place * space.slice_size() + at % space.slice_size())] =
                1000000 * static_cast<std::int64_t>(param) + i + 1;
    }
  }
  return shards;
}

std::vector<std::vector<std::int64_t>> resharded(const FlatSpace& from, const FlatSpace& to) {
  const auto source = filled_shards(from);
  auto shards = filled_shards(to);
  for (auto& shard : shards) shard.assign(shard.size(), 0);
  for (const Read& read : reads_of(plan_reshard(intervals_of(from), intervals_of(to)))) {
    for (std::int64_t i = 0; i < read.length; ++i) {
      std::int64_t& element = shards[static_cast<std::size_t>(read.destination_rank)]
                                    [static_cast<std::size_t>(read.destination_offset + i)];
      EXPECT_EQ(element, 0) << "written twice";
      element = source[static_cast<std::size_t>(read.source_rank)][static_cast<std::size_t>(read.source_offset + i)];
    }
  }
  return shards;
}

TEST(Reshard, BetweenRandomPairsOfLayoutsFillsEveryElement) {
  const std::vector<Layout> layouts = test::small_layouts();
  std::mt19937 random{7};
  for (const std::vector<ParamSpec>& unit : test::small_units()) {
    for (int i = 0; i < 40; ++i) {
      const FlatSpace from{unit, layouts[random() % layouts.size()]}, to{unit, layouts[random() % layouts.size()]};
      ASSERT_EQ(resharded(from, to), filled_shards(to));
    }
  }
}

TEST(Reshard, EqualLayoutsReadAParameterInOnePieceAndBoundThePlan) {
  const FlatSpace alone{{{"w", {5000}}, {"v", {700}}}, Layout{}}, spread{{{"w", {5000}}, {"v", {700}}}, Layout{{2, 3}}};
  EXPECT_EQ(reads_of(plan_reshard(intervals_of(alone), intervals_of(alone))).size(), 2U);
  const auto moves = plan_reshard(intervals_of(spread), intervals_of(alone));
  EXPECT_LE(moves.size(), intervals_of(spread).size() + intervals_of(alone).size());
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
  const auto verdict = [&](std::vector<Interval> intervals) -> std::string {
    try {
      check_cover(std::move(intervals), numels, names);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::corrupt);
      return error.what();
    }
    return "covered";
  };
  EXPECT_EQ(verdict({last, second, first}), "covered");
  EXPECT_THAT(verdict({first, last}), HasSubstr("element 100"));
  EXPECT_THAT(verdict({second, last}), HasSubstr("element 0"));
  EXPECT_THAT(verdict({first, {0, 90, 300, 1, 0}, last}), HasSubstr("element 90 twice"));
  EXPECT_THAT(verdict({first, second}), HasSubstr("b exactly once"));
  EXPECT_THAT(verdict({first, second, last, {3, 0, 1, 0, 0}}), HasSubstr("parameter 3"));
  EXPECT_THAT(verdict({first, {0, 100, 310, 1, 0}, last}), HasSubstr("element 310"));
}

TEST(Reshard, AnElementThatIsNotStoredIsABrokenInvariant) {
  EXPECT_THROW((void)plan_reshard({{0, 0, 10, 0, 0}}, {{0, 0, 20, 0, 0}}), Error);
  EXPECT_THROW((void)plan_reshard({{0, 5, 20, 0, 0}}, {{0, 0, 20, 0, 0}}), Error);
}

}  // namespace
}  // namespace argosy::partition
