#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "core/clock.hpp"
#include "core/file.hpp"
#include "core/owner.hpp"

/// The lease on a folder that one job may change at a time: `run.lock.<generation>`, made whole or not at all; the
/// highest generation owns the folder, and generations only rise. A released or dead owner is followed by the next
/// generation, of which exactly one job becomes the owner. Held by rank 0 for all ranks of the job. An owner renews its
/// line every 15 s; whether one that cannot be seen from here is alive is told by that, not by clocks, which may be
/// wrong. Thread-safe.
namespace argosy {

class Lease {
 public:
  /// Takes the lease of `folder`, which errors call `what`; waits a second for an owner on the way out. One that cannot
  /// be seen, and whose last heartbeat is ten minutes away, in the past or in the future, or lies before this machine
  /// was started, is watched for two minutes, and is dead when its line does not change. Throws Error{usage} naming a
  /// live owner, or on a stop signal while it waits, Error{data}, Error{io}.
  Lease(const Files& files, const Clock& clock, Path folder, std::string what);
  /// Releases it.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  /// Throws Error{usage} when another job has taken over.
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

/// Beats for an owner in a thread of its own: a step, a validation or a load may take longer than a lease. A beat that
/// fails is made good by the next.
class Heartbeat {
 public:
  static constexpr std::chrono::seconds default_interval{15};
  Heartbeat(Lease& lease, std::chrono::duration<double> interval);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace argosy
