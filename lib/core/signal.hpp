#pragma once

#include <optional>

/// Wishes to stop that come as signals. Handlers only set a flag; the training loop agrees on it at the end of a step.
namespace argosy {

/// Installs handlers for SIGTERM, SIGINT and SIGUSR1 (unblocking them) for the life of the object. One object a
/// process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first signal that arrived, if any.
  [[nodiscard]] std::optional<int> received() const noexcept;
};

/// The first signal that a StopSignals of this process has seen: for whoever waits without one at hand.
[[nodiscard]] std::optional<int> stop_signal() noexcept;

}  // namespace argosy
