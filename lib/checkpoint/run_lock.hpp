#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/clock.hpp"
#include "core/file.hpp"

/// The lease on a run directory: `run.lock.<generation>`, made whole or not at all; the highest generation owns the
/// directory, and generations only rise. A released or dead owner is followed by the next generation, of which exactly
/// one job becomes the owner. Held by rank 0 for all ranks of the job. An owner renews its line every 15 s; whether one
/// on another host is alive is seen from that, not from clocks, which may be wrong. Thread-safe.
namespace argosy::checkpoint {

/// Who holds a lock, as its file says.
struct LockOwner {
  std::string host{};
  std::int64_t pid = 0;
  std::string start_time{};  // of the process, in clock ticks since boot
  std::string boot_id{};
  std::string slurm_job{};  // "" outside Slurm
  std::int64_t slurm_restart = 0;
  double heartbeat_s = 0;  // seconds since 1970
  std::int64_t beats = 0;  // since it was taken: the line changes even where the clock stands still
  std::string nonce{};     // of this lock alone
  bool released = false;

  [[nodiscard]] static LockOwner of_this_process(const Files& files, const Clock& clock);
  [[nodiscard]] std::string text() const;
  /// nullopt: half-written or damaged.
  [[nodiscard]] static std::optional<LockOwner> parse(const std::string& text);
  /// Whether the owner is surely gone: released, or its process on this host, or an earlier start of this very Slurm
  /// job.
  [[nodiscard]] bool is_gone(const Files& files, const LockOwner& self) const;
};

class RunLock {
 public:
  /// Takes the lock of `run_dir`; waits a second for an owner on the way out. One whose last heartbeat is ten minutes
  /// away, in the past or in the future, is watched for two minutes, and is dead when its line does not change. Throws
  /// Error{usage} naming a live owner.
  RunLock(const Files& files, const Clock& clock, Path run_dir);
  /// Releases it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

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
  Path run_dir_;
  std::mutex mutex_;  // of beats
  LockOwner self_;
  std::int64_t generation_ = 0;
};

/// Beats for an owner in a thread of its own: a step, a validation or a load may take longer than a lease. A beat that
/// fails is made good by the next.
class Heartbeat {
 public:
  Heartbeat(RunLock& lock, std::chrono::duration<double> interval);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace argosy::checkpoint
