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

  /// The first signal that the object of this process has seen, if any; also for code that has no access to it.
  [[nodiscard]] static std::optional<int> received() noexcept;
};

}  // namespace argosy
