#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/file.hpp"

/// A program that runs beside this process.
namespace argosy {

class Child {
 public:
  /// Starts `sh -c command` in a process group of its own. Its standard input is empty, its standard output is the file
  /// `output`, which is replaced, and its standard error is that of this process. `variables` (NAME=VALUE) are added to
  /// the environment. What launchers and job scripts say to the ranks of this process is left out, so that the command
  /// may start ranks itself. Throws Error{io}.
  Child(const std::string& command, const std::vector<std::string>& variables, const Path& output);
  /// Kills the process group if the program still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Its exit code, or 128 plus the number of the signal that ended it; nullopt: it runs. Does not wait.
  [[nodiscard]] std::optional<int> poll();

 private:
  pid_t pid_ = 0;
  std::optional<int> code_;
};

}  // namespace argosy
