#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "core/file.hpp"

/// Which process made something on a disk that others share: written into leases (core/lease.hpp) and into the names of
/// folders in the making (core/staged_folder.hpp), so that others can tell whether it is surely gone.
namespace argosy {

struct Owner {
  std::string host{};
  std::int64_t pid = 0;
  std::string start_time{};         // of the process, in clock ticks since boot
  std::uint64_t pid_namespace = 0;  // its inode: numbers of processes mean something inside of it alone; 0: unknown
  std::string boot_id{};
  std::string slurm_job{};  // "" outside Slurm
  std::int64_t slurm_restart = 0;
  double heartbeat_s = 0;  // seconds since 1970
  std::int64_t beats = 0;  // since it was taken: the text changes even where the clock stands still
  std::string nonce{};     // of this lease alone
  bool released = false;

  /// Throws Error{io} where /proc does not tell.
  [[nodiscard]] static Owner of_this_process(const Files& files, const Clock& clock);
  /// One line of JSON (checkpoint/FORMAT.md).
  [[nodiscard]] std::string text() const;
  /// nullopt: half-written or damaged.
  [[nodiscard]] static std::optional<Owner> parse(const std::string& text);
  /// Whether the owner is surely gone: released, an earlier start of this very Slurm job, or a process that has ended,
  /// seen from the same pid namespace of the same machine since the same boot. A process that cannot be seen is not
  /// gone. Throws Error{io}.
  [[nodiscard]] bool is_gone(const Files& files, const Owner& self) const;
  /// Whether it last renewed its text before this machine started, under the same host name: then it is gone, or lives
  /// on another machine of that name. Throws Error{io}.
  [[nodiscard]] bool may_have_ended_with_an_earlier_boot(const Files& files, const Clock& clock,
                                                         const Owner& self) const;
};

}  // namespace argosy
