#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"

/// Log lines for people, on stderr. Rank 0 logs from level `info`, the others from `warn`, with their rank in front
/// ("[r0042]"). Metrics are not logged here (telemetry). Thread-safe.
namespace argosy {

class File;

enum class LogLevel { info, warn, error, off };

class Log {
 public:
  explicit Log(int rank = 0, LogLevel level = LogLevel::info);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  void write(LogLevel level, std::string_view text) const;
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::warn, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
  }
  /// One progress line, with share, time left and `figures`: rewritten in place on a terminal, else printed at most
  /// once every 10 seconds. Rank 0 only.
  void progress(std::string_view what, double done, double total, std::string_view figures = {}) const;
  /// Writes a line to stderr without time or level (the `result {…}` line, tables). Rank 0 only.
  void plain(std::string_view line) const;
  void flush() const;
  /// Whether stderr is a terminal.
  [[nodiscard]] bool is_on_terminal() const noexcept;
  /// Appends all lines from now on, but those of progress, to this file as well, with the time in UTC. The first one
  /// that cannot be written ends this, with a warning.
  void copy_to(File file) const;

 private:
  struct State;
  void copy(std::string_view line) const;
  std::unique_ptr<State> state_;
};

/// For output that only informs, such as a status file or metrics: a failure is logged, and the run continues. One
/// thread.
class BestEffort {
 public:
  /// what: what is written, such as a path. Borrows the log.
  BestEffort(const Log& log, std::string what) : log_(&log), what_(std::move(what)) {}

  /// Runs `body` at `step` and returns whether it succeeded. Logs its Error as a warning, unless the previous call
  /// failed as well.
  template <class Body>
  bool attempt(std::int64_t step, Body&& body) {
    try {
      std::forward<Body>(body)();
    } catch (const Error& error) {
      if (!std::exchange(failing_, true))
        log_->warn("{} is not written from step {} on: {}", what_, step, error.what());
      return false;
    }
    if (std::exchange(failing_, false)) log_->info("{} is written again from step {} on", what_, step);
    return true;
  }

 private:
  const Log* log_;
  std::string what_;
  bool failing_ = false;
};

}  // namespace argosy
