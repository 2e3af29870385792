#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

namespace argosy::test {

/// What a log on a terminal shows, byte for byte.
inline std::string terminal_output_of(const std::function<void()>& body) {
  int terminal = -1, inner = -1;
  EXPECT_EQ(openpty(&terminal, &inner, nullptr, nullptr, nullptr), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(inner, STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(inner);
  std::string text;
  std::array<char, 256> piece{};
  for (ssize_t size = 0; (size = read(terminal, piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(size));
  close(terminal);
  return text;
}

}  // namespace argosy::test
