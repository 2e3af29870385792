#include "core/clock.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace argosy {
namespace {

TEST(Clock, Runs) {
  const Clock clock;
  const double before = clock.monotonic_s();
  clock.sleep_s(0.01);
  EXPECT_GE(clock.monotonic_s() - before, 0.01);
  EXPECT_GT(clock.wall_s(), 1.7e9) << "later than 2023";
}

TEST(Clock, DurationsReadWell) {
  const std::pair<double, const char*> durations[] = {
      {0, "0 s"},           {41.4, "41 s"},           {59.6, "1m 00s"}, {185, "3m 05s"},
      {7500, "2h 05m"},     {5.25 * 86400, "5d 06h"}, {-1, "unknown"},  {std::nan(""), "unknown"},
      {INFINITY, "unknown"}};
  for (const auto& [seconds, text] : durations) EXPECT_EQ(duration_text(seconds), text) << seconds;
}

TEST(Clock, TimestampsAreIso8601) {
  EXPECT_EQ(timestamp_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(timestamp_text(1582934399.9), "2020-02-28T23:59:59Z");
  EXPECT_EQ(timestamp_text(1582934400), "2020-02-29T00:00:00Z");
  for (const double no_time : {-1.0, 1.7e19, -1.7e19, std::nan(""), HUGE_VAL})
    EXPECT_EQ(timestamp_text(no_time), "unknown") << no_time;
}

}  // namespace
}  // namespace argosy
