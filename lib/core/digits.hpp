#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

/// Whole numbers in the names and lines of files that anybody may have written.
namespace argosy {

/// Of digits alone, 1 to 18 of them, so that every sum of two fits 64 bits. nullopt: it is anything else.
[[nodiscard]] inline std::optional<std::int64_t> count_in(std::string_view digits) {
  constexpr std::size_t most = 18;
  const bool right = !digits.empty() && digits.size() <= most &&
                     std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!right) return std::nullopt;
  std::int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace argosy
