#pragma once

#include <functional>
#include <memory>

#include "comm/comm.hpp"

/// MPI for the life of a process: started once, and ended in order or for all ranks at once. run_main makes the one of
/// a tool, the test main the one of a test. Use it from the main thread.
namespace argosy::comm {

class Session;

class Environment {
 public:
  /// Starts MPI. Throws Error{comm} when MPI gives less than SERIALIZED.
  Environment(int& argc, char**& argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  /// All ranks, for control traffic.
  [[nodiscard]] const Communicator& world() const noexcept { return *world_; }
  /// All ranks, for the verdict at the end only. It works while operations on `world` are stuck.
  [[nodiscard]] const Communicator& verdicts() const noexcept { return *verdicts_; }

  /// **Collective.** From now on errors name the nodes of ranks that do not answer.
  void exchange_hosts();
  /// Runs `body`, in which no operation waits longer than `limit_s` seconds or a third of the common deadline.
  void within(double limit_s, const std::function<void()>& body) const;
  /// **Collective.** Leaves MPI; the process exits with `code` even if MPI_Finalize hangs (it does over TCP with
  /// UCX 1.13). All communicators must be gone. If operations may still run on a device, the process ends here.
  void finish(int code);
  /// Ends all ranks.
  [[noreturn]] void abort(int code) noexcept;

 private:
  std::unique_ptr<Session> session_;
  std::unique_ptr<Communicator> world_, verdicts_;
};

}  // namespace argosy::comm
