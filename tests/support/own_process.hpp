#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace argosy::test {

/// Runs the disabled test `name` of this program in a process of its own, with its own MPI world of one and `variables`
/// in its environment: its exit code, or the number of the signal it died of with a minus.
inline int run_alone(const char* name, std::initializer_list<std::pair<const char*, const char*>> variables) {
  const pid_t child = fork();
  if (child == 0) {
    for (const char* launcher :
         {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"})
      unsetenv(launcher);
    for (const auto& [variable, value] : variables) setenv(variable, value, 1);
    setenv("GTEST_FILTER", name, 1);
    if (std::freopen("/dev/null", "w", stderr) == nullptr || std::freopen("/dev/null", "w", stdout) == nullptr)
      _exit(126);
    execl("/proc/self/exe", "run", "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace argosy::test
