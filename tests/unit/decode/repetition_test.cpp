#include "decode/repetition.hpp"

#include <gtest/gtest.h>

namespace argosy::decode {
namespace {

using Lines = std::vector<std::vector<std::int32_t>>;

TEST(Repetition, CountsDifferentLinesAndTheMostFrequentPiece) {
  const Repetition found = repetition_in(Lines{{1, 2}, {1, 2}, {1, 3, 4}, {}});
  EXPECT_EQ(found.distinct, 0.75);
  EXPECT_EQ(found.top_piece, 3.0 / 7);
  EXPECT_EQ(found.repeating, 0);
}

TEST(Repetition, FindsOneToFourPiecesFourTimesInARow) {
  for (std::size_t n = 1; n <= 5; ++n) {
    for (std::size_t times = 3; times <= 5; ++times) {
      std::vector<std::int32_t> line{100, 101};
      for (std::size_t i = 0; i < n * times; ++i) line.push_back(static_cast<std::int32_t>(i % n));
      line.push_back(102);
      EXPECT_EQ(repetition_in(Lines{line, {1}}).repeating, n <= 4 && times >= 4 ? 0.5 : 0) << n << " " << times;
    }
  }
  EXPECT_EQ(repetition_in(Lines{{1, 1, 2, 1, 1, 2, 1, 1}}).repeating, 0) << "the repeats are not in a row";
}

TEST(Repetition, OfNothingIsNone) {
  const Repetition none = repetition_in({});
  EXPECT_EQ(none.distinct, 1);
  EXPECT_EQ(none.top_piece, 0);
  EXPECT_EQ(repetition_in(Lines{{}, {}}).top_piece, 0);
}

}  // namespace
}  // namespace argosy::decode
