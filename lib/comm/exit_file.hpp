#pragma once

#include <cstdint>
#include <string>

#include "core/file.hpp"

/// ARGOSY_EXIT_FILE: one line "CODE STEP", for scripts and tests, because launchers lose and mix exit codes. Does
/// nothing when no path is given.
namespace argosy::comm {

class ExitFile {
 public:
  ExitFile(Files files, Path path) : files_(files), path_(std::move(path)) {}

  /// Forgets what an earlier run of the same name left. Rank 0, before any work. Throws Error{io} when the word of that
  /// run stays there, which scripts would take for this one's; where none is, nothing is wrong yet.
  void clear() const;
  /// Rank 0, once the code is agreed: readers see the old file or the whole new one. Throws Error{io}.
  void write_agreed(int code, std::int64_t step) const;
  /// A rank that fails alone: the first one writes, later ones leave its word.
  void write_first(int code, std::int64_t step) const noexcept;

 private:
  Files files_;
  Path path_;
};

}  // namespace argosy::comm
