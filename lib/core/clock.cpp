#include "core/clock.hpp"

#include <fmt/format.h>

#include <cmath>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

namespace argosy {

double Clock::monotonic_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Clock::wall_s() const {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void Clock::sleep_s(double seconds) const { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

bool stopped_within(const std::stop_token& stop, std::chrono::duration<double> interval) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, stop, interval, [&stop] { return stop.stop_requested(); });
}

std::string duration_text(double seconds) {
  constexpr double longest_s = 1e9;
  if (!(seconds >= 0 && seconds < longest_s)) return "unknown";
  const auto s = static_cast<long>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}m {:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h {:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d {:02}h", s / 86400, s % 86400 / 3600);
}

std::string timestamp_text(double wall_s) {
  constexpr double last_s = 2e11;  // in the year 8307: four digits
  if (!(wall_s >= 0 && wall_s < last_s)) return "unknown";
  const auto seconds = static_cast<std::time_t>(std::floor(wall_s));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace argosy
