#pragma once

#include <string>
#include <string_view>

#include "core/file.hpp"
#include "core/log.hpp"
#include "core/owner.hpp"

/// Results that get their names only when they are complete: until a rename commits them, they have a temporary name
/// next to their final place.
namespace argosy {

/// An unfinished folder, named `.tmp-<name>-<nonce>` until it is committed. An existing file or folder is never
/// replaced. One process makes, commits and discards the folder; all ranks may write into it.
class StagedFolder {
 public:
  /// Creates nothing. nonce: the same on all ranks; owned_nonce() if no lease guards the place.
  StagedFolder(const Files& files, Path target, std::string_view nonce);

  [[nodiscard]] const Path& path() const noexcept { return path_; }
  [[nodiscard]] const Path& target() const noexcept { return target_; }
  /// Makes the folder and its missing parents. Throws Error{io}.
  void make() const;
  /// Writes a file into the folder and syncs it. Throws Error{io}.
  void add(const std::string& name, std::string_view content) const;
  /// Renames the folder and syncs its parent. The content must be on disk already. Returns false, and changes nothing,
  /// if the name is in use. Throws Error{io}.
  [[nodiscard]] bool commit() const;
  /// Removes the folder. What cannot be removed is left to sweep_staged_folders().
  void discard() const noexcept;

 private:
  Files files_;
  Path target_, path_;
};

/// The folder that contains `path`; "." for a bare name.
[[nodiscard]] Path folder_of(const Path& path);

/// A nonce that names the owner of the folder.
[[nodiscard]] std::string owned_nonce(const Owner& owner);
/// Removes from `folder` the staged folders, of any tool, whose nonce names an owner that has certainly ended, and logs
/// a warning for each. A folder that cannot be removed is a warning as well, not an error.
void sweep_staged_folders(const Files& files, const Log& log, const Path& folder, const Owner& self);

/// A file that is written piece by piece. One thread.
class OutputFile {
 public:
  /// Creates <path>.tmp-<nonce> next to `path` or, if `path` is a symbolic link, next to its target. A killed process
  /// leaves that file. Throws Error{usage} if `path` exists and is not a regular file, Error{io} if the file cannot be
  /// created.
  OutputFile(const Files& files, Path path);
  /// Removes a file that was not committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::string_view text) { file_.append(as_bytes(text)); }
  /// Flushes the file to disk and renames it to `path`, replacing a file of that name: the last of several writers
  /// wins. Throws Error{io}.
  void commit();

 private:
  Files files_;
  Path path_, partial_;
  File file_;
  bool committed_ = false;
};

}  // namespace argosy
