#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>

/// Time, passed in as an object so that tests can replace it.
namespace argosy {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds on a clock that is never set back or forward.
  [[nodiscard]] virtual double monotonic_s() const;
  /// Seconds since 1970 (UTC).
  [[nodiscard]] virtual double wall_s() const;
  virtual void sleep_s(double seconds) const;
};

/// Waits for `interval`, or until a stop is requested. Returns whether one is.
[[nodiscard]] bool stopped_within(const std::stop_token& stop, std::chrono::duration<double> interval);

/// "2h 05m", "41 s", for times left; "unknown" for what is negative or no number.
[[nodiscard]] std::string duration_text(double seconds);
/// ISO 8601, UTC, whole seconds.
[[nodiscard]] std::string timestamp_text(double wall_s);

}  // namespace argosy
