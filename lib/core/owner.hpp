#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "core/file.hpp"

/// Identifies the process that made something on a shared disk. It is written into leases (core/lease.hpp) and into the
/// names of unfinished folders (core/staged.hpp), so that other jobs can tell whether that process has ended.
namespace argosy {

/// This machine's name, as gethostname gives it.
[[nodiscard]] std::string host_name();

struct Owner {
  std::string host{};
  std::int64_t pid = 0;
  std::string start_time{};         // of the process, in clock ticks since boot
  std::uint64_t pid_namespace = 0;  // its inode; a pid is valid only inside its namespace; 0: unknown
  std::string boot_id{};
  std::string slurm_job{};  // "" outside Slurm
  std::int64_t slurm_restart = 0;
  double heartbeat_s = 0;  // seconds since 1970
  std::int64_t beats = 0;  // since it was taken; makes the text change even if the clock does not
  std::string nonce{};     // differs for each lease
  bool released = false;

  /// Throws Error{io} if /proc cannot be read.
  [[nodiscard]] static Owner of_this_process(const Files& files, const Clock& clock);
  /// One line of JSON (checkpoint/FORMAT.md).
  [[nodiscard]] std::string text() const;
  /// nullopt if the text is incomplete or damaged.
  [[nodiscard]] static std::optional<Owner> parse(const std::string& text);
  /// Whether the owner has certainly ended: it has released its lease, it is an earlier start of this same Slurm job,
  /// or its process does not exist in the same pid namespace of the same machine since the same boot. Returns false if
  /// that cannot be determined. Throws Error{io}.
  [[nodiscard]] bool is_gone(const Files& files, const Owner& self) const;
  /// Whether it has this machine's host name and last renewed its text before this machine booted. Then it has ended,
  /// or runs on another machine of the same name. Throws Error{io}.
  [[nodiscard]] bool may_have_ended_with_an_earlier_boot(const Files& files, const Clock& clock,
                                                         const Owner& self) const;
};

}  // namespace argosy
