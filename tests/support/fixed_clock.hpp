#pragma once

#include "core/clock.hpp"

namespace argosy::test {

/// A clock that a test sets by hand; sleeping moves it.
class FixedClock : public Clock {
 public:
  [[nodiscard]] double monotonic_s() const override { return now_s; }
  [[nodiscard]] double wall_s() const override { return now_s + set_by_s; }
  void sleep_s(double seconds) const override { now_s += seconds; }

  mutable double now_s = 0;
  double set_by_s = 0;  // by how much the time of day was set forward
};

}  // namespace argosy::test
