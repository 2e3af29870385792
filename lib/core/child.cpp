#include "core/child.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

namespace argosy {
namespace {

/// Whether a variable speaks to this rank alone.
bool is_of_this_rank(std::string_view variable) {
  static constexpr std::array<std::string_view, 11> prefixes{"PMI_",
                                                             "PMIX_",
                                                             "PMIX2_",
                                                             "HYDI_",
                                                             "HYDRA_",
                                                             "MPI_LOCAL",
                                                             "MPIEXEC_",
                                                             "ARGOSY_EXIT_FILE=",
                                                             "ARGOSY_EXPECT_RANKS=",
                                                             "ARGOSY_EXPECT_NODES=",
                                                             "ARGOSY_REQUEST="};
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

}  // namespace

Child::Child(const std::string& command, const std::vector<std::string>& variables, const Path& output) {
  std::vector<char*> environment;
  std::size_t known = 0;
  while (environ[known] != nullptr) ++known;
  environment.reserve(known + variables.size() + 1);
  for (std::size_t i = 0; i < known; ++i)
    if (!is_of_this_rank(environ[i])) environment.push_back(environ[i]);
  for (const std::string& variable : variables) environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  std::string text = command, shell = "sh", option = "-c";
  std::array<char*, 4> arguments{shell.data(), option.data(), text.data(), nullptr};

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW,
                                   0666);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t of_child;
  sigemptyset(&of_child);
  posix_spawnattr_setsigmask(&attributes, &of_child);
  sigfillset(&of_child);
  posix_spawnattr_setsigdefault(&attributes, &of_child);
  const int error = posix_spawn(&pid_, "/bin/sh", &files, &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0)
    throw_claim(
        Fault::io,
        fmt::format("the command whose output goes to {} cannot be started: {}", output.string(), std::strerror(error)),
        output.string(), "a command that can be started", std::strerror(error), "check that the file can be written");
}

Child::~Child() {
  if (poll()) return;
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> Child::poll() {
  constexpr int of_signals = 128;
  int status = 0;
  if (!code_ && waitpid(pid_, &status, WNOHANG) == pid_)
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : of_signals + WTERMSIG(status);
  return code_;
}

}  // namespace argosy
