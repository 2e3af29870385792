#include "optim/clip.hpp"

#include <limits>

#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using optim::SkipGuard;

TEST(Clip, ScalesDownNeverUp) {
  EXPECT_DOUBLE_EQ(optim::clip_coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(optim::clip_coefficient(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(optim::clip_coefficient(1e9, 0), 1);
}

TEST(SkipGuard, SkipsWhatIsNotFiniteEvenWhenOff) {
  SkipGuard guard({}, {});
  EXPECT_FALSE(guard.skips(1, 1e30));
  EXPECT_TRUE(guard.skips(2, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(guard.skips(3, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(std::tuple(guard.state().skipped, guard.state().in_a_row), std::tuple(2, 2));
  EXPECT_FALSE(guard.skips(4, 1));
  EXPECT_EQ(guard.state().in_a_row, 0);
}

TEST(SkipGuard, SkipsAboveTheAbsoluteLimit) {
  SkipGuard guard({.abs = 5}, {});
  EXPECT_FALSE(guard.skips(1, 5));
  EXPECT_TRUE(guard.skips(2, 5.001));
}

TEST(SkipGuard, SkipsSpikesOverTheRunningMeanOfTakenSteps) {
  SkipGuard guard({.factor = 10, .after = 2}, {});
  EXPECT_FALSE(guard.skips(1, 1));
  EXPECT_FALSE(guard.skips(2, 50)) << "not yet after";
  EXPECT_DOUBLE_EQ(guard.state().mean_norm, 0.99 + 0.5);
  EXPECT_TRUE(guard.skips(3, 15));
  EXPECT_DOUBLE_EQ(guard.state().mean_norm, 1.49) << "a skipped step stays out of the mean";
  EXPECT_FALSE(guard.skips(4, 14.9));
}

TEST(SkipGuard, GivesUpAfterTooManyInARow) {
  SkipGuard guard({.max_consecutive = 3}, {.skipped = 7, .in_a_row = 1});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(guard.skips(8, nan));
  EXPECT_TRUE(says(refusal(Fault::numeric, [&] { (void)guard.skips(9, nan); }), "3 steps in a row"));
}

TEST(SkipGuard, SkipsStepsWithoutTokens) {
  SkipGuard guard({.max_consecutive = 2}, {});
  EXPECT_TRUE(guard.skips(1, 0, /*has_tokens=*/false));
  EXPECT_EQ(guard.state().taken, 0);
  EXPECT_FALSE(guard.skips(2, 0));
  EXPECT_TRUE(guard.skips(3, 0, false));
  EXPECT_TRUE(says(refusal(Fault::numeric, [&] { (void)guard.skips(4, 0, false); }),
                   "2 steps in a row were skipped because loss.error_norm_truncation removed all tokens"));
}

}  // namespace
}  // namespace argosy::test
