#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "core/clock.hpp"
#include "core/file.hpp"
#include "core/owner.hpp"

/// The lease on a folder that one job may change at a time: the file `run.lock.<generation>`, created atomically. The
/// highest generation owns the folder, and generations only rise. When an owner has released its lease or is dead,
/// exactly one job becomes the owner of the next generation. Rank 0 holds the lease for all ranks of the job. An owner
/// renews its line every 15 s; a process on another machine counts as alive while its line changes, since clocks may be
/// wrong. Thread-safe.
namespace argosy {

class Lease {
 public:
  /// Takes the lease of `folder`, which errors call `what`. Waits one second for an owner that is ending. An owner
  /// whose process cannot be seen from here is watched for two minutes if its last heartbeat is ten minutes away (past
  /// or future) or is older than this machine's boot; it counts as dead if its line does not change. Throws
  /// Error{usage} naming a live owner, or on a stop signal during the wait; Error{data}; Error{io}.
  Lease(const Files& files, const Clock& clock, Path folder, std::string what);
  /// Releases it.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Throws Error{usage} if another job has taken over.
  void check() const;
  /// Renews the heartbeat, unless another job has taken over. Throws Error{io}.
  void beat();
  [[nodiscard]] std::int64_t generation() const noexcept { return generation_; }

 private:
  [[nodiscard]] Path path_of(std::int64_t generation) const;
  [[nodiscard]] std::int64_t highest() const;  // 0: none
  [[nodiscard]] bool try_take(std::int64_t generation);
  [[noreturn]] void refuse(const std::string& owner, std::int64_t generation) const;

  Files files_;
  const Clock& clock_;
  Path folder_;
  std::string what_;
  std::mutex mutex_;  // of beats
  Owner self_;
  std::int64_t generation_ = 0;
};

/// Whether a file of this name belongs to a lease: `run.lock.<generation>`.
[[nodiscard]] bool is_lease_name(std::string_view name);

/// A thread that renews a lease, since a step, a validation or a load may take longer than a lease lasts. The next beat
/// makes up for one that fails.
[[nodiscard]] std::jthread heartbeat(Lease& lease, std::chrono::duration<double> interval = std::chrono::seconds{15});

}  // namespace argosy
