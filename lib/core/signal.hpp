#pragma once

#include <optional>

/// Signals that ask the process to stop. Handlers only set a flag; ranks agree on it at the end of a training step.
namespace argosy {

/// Installs handlers for SIGTERM, SIGINT and SIGUSR1, and unblocks these signals, for the life of the object. At most
/// one object per process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first signal that arrived, if any.
  [[nodiscard]] std::optional<int> received() const noexcept;
};

/// The first signal that the StopSignals of this process has seen; for code that has no access to that object.
[[nodiscard]] std::optional<int> stop_signal() noexcept;

}  // namespace argosy
