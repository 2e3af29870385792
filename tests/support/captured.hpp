#pragma once

#include <gtest/gtest.h>

#include <string>

namespace argosy::test {

/// What `body` writes to stderr.
template <class Body>
std::string stderr_of(const Body& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

}  // namespace argosy::test
