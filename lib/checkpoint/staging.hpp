#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"
#include "core/staged_folder.hpp"

/// A checkpoint in the making: `.tmp-<name>-<nonce>` beside its final place, until the rename that commits it. What a
/// crash leaves behind is either a committed directory or one with a dot in front. Rank 0 opens, commits and discards;
/// all ranks write into it.
namespace argosy::checkpoint {

class Staging {
 public:
  Staging(const Files& files, Path target, const std::string& nonce);

  [[nodiscard]] const Path& folder() const noexcept { return staged_.path(); }
  [[nodiscard]] const Path& target() const noexcept { return staged_.target(); }
  /// Makes the folder (and those of the shards) after a look at the free space. Throws Error{io}.
  void open(std::uint64_t needed_bytes, int world) const;
  /// Writes a file into the folder and syncs it. Throws Error{io}.
  void add(const std::string& name, std::string_view content) const;
  /// Attached files, manifest, all synced; then `last_check`, rename, sync of the parent = commit. Throws Error{io},
  /// Error{taken} when the target exists, and what `last_check` throws.
  void commit(Manifest manifest, std::span<const Attachment> attachments, const std::function<void()>& last_check,
              Fault taken = Fault::io) const;
  /// Removes the folder; what cannot be removed is left to the sweep.
  void discard() const noexcept { staged_.discard(); }

 private:
  Files files_;
  StagedFolder staged_;
};

/// Hex digits of the nonces in names of folders: of saves, and of checkpoints that are being removed.
inline constexpr std::size_t save_nonce_digits = 16, removal_digits = 8;

/// Removes what dead saves and removals have left in a folder of checkpoints, known by their whole names.
void sweep(const Files& files, const Path& folder);

}  // namespace argosy::checkpoint
