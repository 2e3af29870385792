#pragma once

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace argosy::test {

/// A shell command that runs a script of tests/system/judges with the judges' Python, and ends with 77 where
/// scripts/setup --judges has not run.
inline std::string judge_command(const std::string& script, const std::string& arguments) {
  return fmt::format(R"(python=${{ARGOSY_DEPS:-$HOME/.cache/argosy}}/judges/bin/python; [ -x "$python" ] || exit 77; )"
                     R"("$python" "$ARGOSY_SOURCE_DIR/tests/system/judges/{}" {})",
                     script, arguments);
}

inline constexpr int no_judges = 77;
inline constexpr const char* no_judges_text = "scripts/setup --judges has not run";

/// The exit code of that command; -1 where a signal ended it.
inline int run_judge(const std::string& script, const std::string& arguments) {
  const int status = std::system(judge_command(script, arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace argosy::test
