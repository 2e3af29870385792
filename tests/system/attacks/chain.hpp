#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "support/temp_folder.hpp"

/// The chain from text to translations as processes, small enough to be run hundreds of times, for tests that damage
/// what one tool leaves and let the next one read it.
namespace argosy::test {

/// How a process ended: its exit code, 124 when it was killed after a minute, and all that it has printed.
struct Ended {
  int code = 0;
  std::string output;
  [[nodiscard]] bool good() const { return code == 0; }
  /// Refused with one of the codes for what a user, a text or a file can be wrong about.
  [[nodiscard]] bool refused() const { return code >= 2 && code <= 4; }
};

/// Runs shell commands in a folder. `$A` is the folder of the tools; each has one rank, one thread and a cache of its
/// own.
[[nodiscard]] Ended run(const Path& folder, const std::string& command);

/// Relative paths of all regular files below a folder, sorted.
[[nodiscard]] std::vector<std::string> files_below(const Path& folder);

/// A tool that reads what others have left, and what it makes of it.
struct Reading {
  std::string command;
  Path result;  // file or folder
};

/// A part of what a chain leaves behind, and who reads it.
struct Part {
  std::string name;
  std::vector<std::string> folders;  // files and folders of the chain that the readers need
  std::vector<std::string> under;    // those of them that a test damages
  std::vector<Reading> readings;
};
[[nodiscard]] const std::vector<Part>& parts();

/// Content of a file or folder as one text, "" where there is none: names and digests. Of a checkpoint the digests of
/// its state count, not the times and paths its manifest tells; leases are left out.
[[nodiscard]] std::string result_at(const Path& path);

/// A folder with config.json, the texts, and what count, preprocess, train, soup, export and translate have made of
/// them. The run lacks its last checkpoint: train goes on from step 6, or from an older one, and ends at step 8 with
/// the same bits.
class Chain {
 public:
  /// Made once a process.
  static const Chain& whole();
  /// A copy to damage. Tools leave it the same results as in the original.
  [[nodiscard]] std::unique_ptr<TempFolder> copy(const std::vector<std::string>& parts) const;
  [[nodiscard]] const Path& folder() const { return folder_.path(); }
  /// Relative paths of the files that a test of this part damages.
  [[nodiscard]] std::vector<std::string> files_of(const Part& part) const;

 private:
  Chain();
  TempFolder folder_;
};

}  // namespace argosy::test
