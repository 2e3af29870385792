#include "optim/order_free_sum.hpp"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace argosy::optim {
namespace {

double sum_of(const std::vector<double>& terms) {
  OrderFreeSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

TEST(OrderFreeSum, HoldsOneTermOfAnySizeExactly) {
  for (const double term : {0.0, 1.0, 1.0 / 3, 1e300, 3.7e-41, std::numeric_limits<double>::max(),
                            std::numeric_limits<double>::min(), std::numeric_limits<double>::denorm_min()})
    EXPECT_EQ(sum_of({term}), term);
}

TEST(OrderFreeSum, LosesNoSmallTermToALargeOne) {
  EXPECT_EQ(sum_of(std::vector<double>(4096, 0x1p-53)), 0x1p-41);
  std::vector<double> terms(4096, 0x1p-53);
  terms.insert(terms.begin(), 1.0);
  EXPECT_EQ(sum_of(terms), 1.0 + 0x1p-41);
}

TEST(OrderFreeSum, GivesTheSameBitsInAnyOrderAndInAnyParts) {
  std::mt19937 random{3};
  std::vector<double> terms;
  for (int i = 0; i < 1000; ++i)
    terms.push_back(std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 150));
  const double sum = sum_of(terms);
  double plain = 0, shuffled_plain = 0;
  for (const double term : terms) plain += term;
  EXPECT_NEAR(sum, plain, 1e-12 * sum);
  for (int i = 0; i < 5; ++i) {
    std::shuffle(terms.begin(), terms.end(), random);
    EXPECT_EQ(sum_of(terms), sum);
  }
  for (const double term : terms) shuffled_plain += term;
  EXPECT_NE(plain, shuffled_plain) << "any sum would pass";
  OrderFreeSum first, second;
  for (std::size_t i = 0; i < terms.size(); ++i) (i % 3 == 0 ? first : second).add(terms[i]);
  std::transform(first.parts().begin(), first.parts().end(), second.parts().begin(), first.parts().begin(),
                 std::plus<>{});
  EXPECT_EQ(first.value(), sum);
}

TEST(OrderFreeSum, IsNoNumberWhereATermIsNone) {
  EXPECT_TRUE(std::isnan(sum_of({1.0, std::numeric_limits<double>::quiet_NaN()})));
  EXPECT_TRUE(std::isnan(sum_of({std::numeric_limits<double>::infinity(), 1.0})));
}

TEST(OrderFreeSum, AddsSquaresOfPieces) {
  Piece piece;
  piece.gradient = at::arange(300, at::kFloat);
  OrderFreeSum sum;
  const std::vector<Piece> pieces{piece, piece};
  add_squares(pieces, sum);
  EXPECT_EQ(sum.value(), 2.0 * 299 * 300 * 599 / 6);
}

}  // namespace
}  // namespace argosy::optim
