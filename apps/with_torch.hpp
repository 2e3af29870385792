#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/error.hpp"

/// Tools that mostly need no LibTorch, and so start fast and in little memory. A second program next to such a tool has
/// LibTorch and is the whole tool as well; command lines that run a model go there.
namespace argosy::app {

class TorchProgram {
 public:
  /// options: those that need the program, for messages.
  TorchProgram(const char* name, const char* options) : name_(name), options_(options) {}

  /// Runs the program in this process, before MPI starts, if the command line runs a model. A wrong command line is
  /// left to the tool, which reports it. Returns only if this is not needed or not possible.
  template <class Command>
  void run_if_needed(int argc, char** argv) {
    Command command;
    try {
      command.cli.parse(argc, argv);
    } catch (const CLI::Error&) {
      return;
    }
    if (!command.runs_the_model()) return;
    std::error_code none;
    path_ = std::filesystem::read_symlink("/proc/self/exe", none).replace_filename(name_);
    execv(path_.c_str(), argv);  // returns only when it fails
    why_not_ = std::strerror(errno);
  }

  /// Says why it was not possible.
  [[noreturn]] void refuse() const {
    throw_claim(Fault::usage, fmt::format("{}, which runs the model, cannot be started: {}", path_.string(), why_not_),
                path_.string(), "the program " + name_, why_not_,
                fmt::format("build Argosy with LibTorch, or omit {}", options_));
  }

 private:
  std::string name_, options_, why_not_;
  std::filesystem::path path_;
};

}  // namespace argosy::app
