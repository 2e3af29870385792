#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace argosy::test {

/// The number of a process that was there and is gone.
inline pid_t dead_pid() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

/// The exit code that `body` gives to a child process, in which it runs; a code of its own where a signal ends that.
template <class Body>
int exit_code_in_child(const Body& body) {
  constexpr int killed = 255;
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : killed;
}

using Variables = std::initializer_list<std::pair<const char*, const char*>>;

/// Runs `words` in a process of its own, with its own MPI world of one and `variables` in its environment, and what it
/// prints in the file `output`: its exit code, or the number of the signal it died of with a minus.
inline int run_words(std::vector<std::string> words, Variables variables, const char* output) {
  const pid_t child = fork();
  if (child == 0) {
    for (const char* launcher :
         {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"})
      unsetenv(launcher);
    for (const auto& [variable, value] : variables) setenv(variable, value, 1);
    if (std::freopen(output, "w", stdout) == nullptr || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(126);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// The same, where the last of `words` is a test program, for its test `name` alone, disabled or not.
inline int run_program(std::vector<std::string> words, const char* name, Variables variables, const char* output) {
  words.push_back(std::string("--gtest_filter=") + name);
  words.emplace_back("--gtest_also_run_disabled_tests");
  return run_words(std::move(words), variables, output);
}

/// The same for this program as this user, and what it prints goes nowhere.
inline int run_alone(const char* name, Variables variables) {
  return run_program({"/proc/self/exe"}, name, variables, "/dev/null");
}

}  // namespace argosy::test
