#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/run_lock.hpp"

/// A checkpoint in the making: `.tmp-<name>-<nonce>` beside its final place, until the rename that commits it. What a
/// crash leaves behind is either a committed directory or one with a dot in front. Rank 0 opens, commits and discards;
/// all ranks write into it.
namespace argosy::checkpoint {

class Staging {
 public:
  Staging(const Files& files, Path target, const std::string& nonce);

  [[nodiscard]] const Path& folder() const noexcept { return folder_; }
  [[nodiscard]] const Path& target() const noexcept { return target_; }
  /// Makes the folder (and those of the shards) after a look at the free space. Throws Error{io}.
  void open(std::uint64_t needed_bytes, int world) const;
  /// Writes a file into the folder and syncs it. Throws Error{io}.
  void add(const std::string& name, std::string_view content) const;
  /// Attached files, manifest, all synced; then `last_check`, rename, sync of the parent = commit. Throws Error{io},
  /// also when the target exists, and what `last_check` throws.
  void commit(Manifest manifest, std::span<const Attachment> attachments,
              const std::function<void()>& last_check) const;
  /// Removes the folder; what cannot be removed is left to the sweep.
  void discard() const noexcept;

 private:
  [[nodiscard]] bool is_committed(const std::string& manifest_text) const;

  Files files_;
  Path target_, folder_;
};

/// Removes what dead saves have left in a folder of checkpoints: `.tmp-…` and `.del-…`.
void sweep(const Files& files, const Path& folder);

/// A nonce that tells which process stages, for work in a folder that no run lock guards.
[[nodiscard]] std::string nonce_of(const LockOwner& owner);
/// Removes from `folder` what stagings of other processes have left whose nonce names an owner that is surely gone.
/// Returns what was removed. Throws Error{io}.
std::vector<Path> sweep_dead(const Files& files, const Path& folder, const LockOwner& self);

/// `digits` hex digits from the system's source of randomness.
[[nodiscard]] std::string random_hex(int digits);

}  // namespace argosy::checkpoint
