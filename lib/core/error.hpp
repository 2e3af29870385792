#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>

/// The one error type. A fault decides the exit code of the process; the facts make one sentence a person can act on.
/// Thrown anywhere in the library, caught once in comm::run_main. Absence of a value is std::optional, never an error.
namespace argosy {

enum class Fault { usage, config, data, io, corrupt, comm, device, numeric, internal };

/// Exit codes of every Argosy tool. `stopped` is no error: work was committed and the run wants to be requeued.
enum class Exit : int { ok = 0, usage = 2, data = 3, io = 4, comm = 5, numeric = 6, internal = 70, stopped = 75 };

/// Exit code of a fault: usage, config 2 · data 3 · io, corrupt 4 · comm, device 5 · numeric 6 · internal 70.
[[nodiscard]] Exit exit_code(Fault fault) noexcept;

struct Facts {
  std::string wanted{}, got{}, where{}, remedy{};  // empty parts are left out of the sentence
};

/// what() is one sentence: "wanted …, got … in …: remedy".
class Error : public std::runtime_error {
 public:
  Error(Fault fault, Facts facts, std::source_location at = std::source_location::current());

  [[nodiscard]] Fault fault() const noexcept { return fault_; }
  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  [[nodiscard]] const std::source_location& at() const noexcept { return at_; }

 private:
  Fault fault_;
  Facts facts_;
  std::source_location at_;
};

[[noreturn]] void throw_broken_invariant(const char* condition, const std::string& text, std::source_location at);

}  // namespace argosy

/// For our own broken invariants (Fault::internal), always on. User mistakes throw Error with facts instead.
#define ARGOSY_CHECK(condition, ...)                                                                                \
  do {                                                                                                              \
    if (!(condition)) [[unlikely]]                                                                                  \
      ::argosy::throw_broken_invariant(#condition, ::fmt::format("" __VA_ARGS__), std::source_location::current()); \
  } while (false)
