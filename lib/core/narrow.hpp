#pragma once

#include <concepts>
#include <source_location>
#include <utility>

#include "core/error.hpp"

/// The way from a wide integer to a narrow one. An explicit cast keeps the low bits of a number that is too large and
/// says nothing: what is configured or read from a file is bounded where it is read, and what becomes narrow says so
/// here. `scripts/lint rules` refuses other casts to narrow integers (scripts/lint.d/narrowing.txt lists the rest).
namespace argosy {

/// `value` as a To. Throws Error{internal} when a To cannot hold it.
template <std::integral To, std::integral From>
[[nodiscard]] constexpr To narrow(From value, std::source_location at = std::source_location::current()) {
  if (!std::in_range<To>(value)) [[unlikely]]
    throw_broken_invariant("a number that fits", fmt::format("{} for {} bytes", value, sizeof(To)), at);
  return static_cast<To>(value);
}

}  // namespace argosy
