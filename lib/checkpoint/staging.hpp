#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"
#include "core/staged.hpp"

/// The folder of a checkpoint before its commit: `.tmp-<name>-<nonce>` next to its final place. A crash leaves either a
/// committed directory or one whose name begins with a dot. Rank 0 opens, commits and discards the folder; all ranks
/// write into it.
namespace argosy::checkpoint {

class Staging {
 public:
  Staging(const Files& files, Path target, const std::string& nonce);

  [[nodiscard]] const Path& folder() const noexcept { return staged_.path(); }
  /// Checks the free space and makes the folder and those of the shards. Throws Error{io}.
  void open(std::uint64_t needed_bytes, int world) const;
  /// Writes a file into the folder and syncs it. Throws Error{io}.
  void add(const std::string& name, std::string_view content) const { staged_.add(name, content); }
  /// Writes and syncs the attached files and the manifest, calls `last_check`, renames the folder and syncs its parent.
  /// Throws Error{io}, Error{taken} when the target exists, and what `last_check` throws.
  void commit(Manifest manifest, std::span<const Attachment> attachments, const std::function<void()>& last_check,
              Fault taken = Fault::io) const;
  /// Removes the folder. The next sweep removes what could not be removed.
  void discard() const noexcept { staged_.discard(); }

 private:
  /// Those that the shards are in besides folder() itself.
  [[nodiscard]] std::set<Path> shard_folders(int world) const;

  Files files_;
  StagedFolder staged_;
};

/// The number of hex digits of nonces in folder names: of saves, and of checkpoints that are being removed.
inline constexpr std::size_t save_nonce_digits = 16, removal_digits = 8;

/// Removes from a folder of checkpoints what dead saves and removals have left. Matches whole names.
void sweep(const Files& files, const Path& folder);

}  // namespace argosy::checkpoint
