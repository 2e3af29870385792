#pragma once

#include <string>
#include <string_view>

#include "core/file.hpp"
#include "core/log.hpp"
#include "core/owner.hpp"

/// A folder in the making: `.tmp-<name>-<nonce>` next to its final place, until the rename that commits it. A result
/// exists under its name only when it is complete, and nothing that is there already is ever replaced. One process
/// makes, commits and discards; all ranks may write into it.
namespace argosy {

class StagedFolder {
 public:
  /// Touches nothing. nonce: the same on all ranks; owned_nonce() where no lease guards the place.
  StagedFolder(const Files& files, Path target, std::string_view nonce);

  [[nodiscard]] const Path& path() const noexcept { return path_; }
  [[nodiscard]] const Path& target() const noexcept { return target_; }
  /// Makes it, and the folders above it where they are missing. Throws Error{io}.
  void make() const;
  /// Renames it and syncs the folder above. False when something else has appeared under that name; nothing has changed
  /// then. What is in it has to be on the disk already. Throws Error{io}.
  [[nodiscard]] bool commit() const;
  /// Removes it; what cannot be removed is left to a sweep.
  void discard() const noexcept;

 private:
  Files files_;
  Path target_, path_;
};

/// The folder a file lies in, "." for a bare name.
[[nodiscard]] Path folder_of(const Path& path);

/// A nonce that tells whose the folder is.
[[nodiscard]] std::string owned_nonce(const Owner& owner);
/// Removes from `folder` the staged folders whose nonce names an owner that is surely gone, whatever tool made them,
/// and warns of each. One that cannot be removed is warned of, too: it is no reason to do nothing.
void sweep_staged_folders(const Files& files, const Log& log, const Path& folder, const Owner& self);

}  // namespace argosy
