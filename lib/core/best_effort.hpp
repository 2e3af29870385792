#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"

/// For output that only informs, such as a status file or metrics: a failure is logged, and the run continues. One
/// thread.
namespace argosy {

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
