#pragma once

#include <fmt/format.h>

#include <concepts>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

/// The one error type. A fault decides the exit code of the process; the facts form one sentence that a person can act
/// on. Errors are thrown anywhere in the library and caught once, in comm::run_main. A value that may be absent is a
/// std::optional, never an error.
namespace argosy {

enum class Fault { usage, config, data, io, corrupt, comm, device, numeric, internal };

/// Exit codes of every Argosy tool. `stopped` is no error: the run has saved its work and is to be requeued.
enum class Exit : int { ok = 0, usage = 2, data = 3, io = 4, comm = 5, numeric = 6, internal = 70, stopped = 75 };

/// Exit code of a fault: usage, config 2 · data 3 · io, corrupt 4 · comm, device 5 · numeric 6 · internal 70.
[[nodiscard]] Exit exit_code(Fault fault) noexcept;

/// What an error states. Empty parts are left out of its sentence.
struct Facts {
  std::string sentence{};  // whole, with place and remedy, for cases that the pattern does not suit
  std::string wanted{}, got{}, where{}, remedy{};
};

/// what() is facts.sentence or, if that is empty, follows the pattern "where: expected wanted, got got; remedy".
class Error : public std::runtime_error {
 public:
  Error(Fault fault, Facts facts, std::source_location at = std::source_location::current());

  [[nodiscard]] Fault fault() const noexcept { return fault_; }
  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  /// what() up to the remedy, for a sentence that gives another one.
  [[nodiscard]] std::string problem() const;
  [[nodiscard]] const std::source_location& at() const noexcept { return at_; }

 private:
  Fault fault_;
  Facts facts_;
  std::source_location at_;
};

/// Throws an Error that follows the pattern. The arguments have its order; an empty remedy is left out.
[[noreturn]] void throw_error(Fault fault, std::string where, std::string wanted, std::string got,
                              std::string remedy = "", std::source_location at = std::source_location::current());

/// The same for a case that the pattern does not suit: the sentence is "claim; remedy".
[[noreturn]] void throw_claim(Fault fault, std::string claim, std::string where, std::string wanted, std::string got,
                              std::string remedy = "", std::source_location at = std::source_location::current());

[[noreturn]] void throw_broken_invariant(const char* condition, const std::string& text, std::source_location at);

/// `value` as a To. Throws Error{internal} if a To cannot hold it. An explicit cast would keep the low bits and report
/// nothing; `scripts/lint rules` refuses such casts to narrow integers (scripts/lint.d/narrowing.txt lists the known
/// ones). What a user configures or a file holds is bounded where it is read.
template <std::integral To, std::integral From>
[[nodiscard]] constexpr To narrow(From value, std::source_location at = std::source_location::current()) {
  if (!std::in_range<To>(value)) [[unlikely]]
    throw_broken_invariant("a number that fits", fmt::format("{} for {} bytes", value, sizeof(To)), at);
  return static_cast<To>(value);
}

}  // namespace argosy

/// For bugs in Argosy itself (Fault::internal), in all builds. Mistakes of users throw Error with facts instead.
#define ARGOSY_CHECK(condition, ...)                                                                                \
  do {                                                                                                              \
    if (!(condition)) [[unlikely]]                                                                                  \
      ::argosy::throw_broken_invariant(#condition, ::fmt::format("" __VA_ARGS__), std::source_location::current()); \
  } while (false)
