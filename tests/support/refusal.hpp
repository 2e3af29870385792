#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/error.hpp"

/// What a test expects to be refused, and the error that says so.
namespace argosy::test {

/// The error `body` throws. The test fails if it throws none.
template <class Body>
Error error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return Error{Fault::internal, {}};
}

/// Its sentence, if it has that fault; else the test fails.
template <class Body>
std::string refusal(Fault fault, const Body& body) {
  const Error error = error_of(body);
  EXPECT_EQ(error.fault(), fault) << error.what();
  return error.what();
}

/// Whether `text` has all `parts`.
template <class... Parts>
testing::AssertionResult says(const std::string& text, const Parts&... parts) {
  for (const std::string_view part : {std::string_view(parts)...})
    if (text.find(part) == std::string::npos) return testing::AssertionFailure() << "no `" << part << "` in: " << text;
  return testing::AssertionSuccess();
}

}  // namespace argosy::test
