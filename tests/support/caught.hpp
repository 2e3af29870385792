#pragma once

#include <optional>

#include "core/error.hpp"

namespace argosy::test {

/// The error that `body` ends with; nullopt: it ends well.
template <class Body>
std::optional<Error> caught(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace argosy::test
