#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "config/config.hpp"
#include "core/error.hpp"
#include "data/transforms/sides.hpp"
#include "data/transforms/transform.hpp"

/// Checks of configurations and of lengths that transforms share.
namespace argosy::data {

/// Adds a problem unless least <= value <= most.
inline void require_in(config::Problems& problems, std::string_view pointer, double value, double least, double most) {
  problems.require(value >= least && value <= most, pointer, fmt::format("a number from {} to {}", least, most),
                   fmt::format("{}", value));
}
inline void require_in(config::Problems& problems, std::string_view pointer, std::int64_t value, std::int64_t least,
                       std::int64_t most) {
  problems.require(value >= least && value <= most, pointer, fmt::format("{} to {}", least, most),
                   fmt::format("{}", value));
}

/// Adds a problem unless `piece` can be one piece of a tokenizer: a few bytes without blanks. Of such pieces and commas
/// SentencePiece makes lists.
inline void require_piece(config::Problems& problems, std::string_view pointer, std::string_view piece) {
  constexpr std::size_t longest = 100;
  problems.require(!piece.empty() && piece.size() <= longest && piece.find_first_of(" \t\r\n,\"") == piece.npos,
                   pointer, fmt::format("a piece of 1 to {} bytes without blanks, commas and quotes", longest),
                   piece.empty() ? "an empty text" : piece);
}

/// Of keys `growth`. A quarter is usual; beyond a few times, rows are mostly padding.
inline constexpr double most_growth = 10;

/// For recipes.
inline std::string text_of_growth(const std::optional<double>& growth) {
  return growth ? fmt::format("{}", *growth) : "planned";
}

/// Of lines before an example that transforms read.
inline constexpr std::int64_t most_lines_before = 100;

/// Lengths that may grow by this share, on these sides.
inline Lengths grown(Lengths lengths, double growth, Sides sides = Sides::both) {
  const auto longer = [&](std::uint32_t length) {
    constexpr double widest = std::numeric_limits<std::uint32_t>::max();
    const double most = std::min(widest, std::ceil(static_cast<double>(length) * (1 + growth)));
    return narrow<std::uint32_t>(static_cast<std::int64_t>(most));
  };
  if (sides != Sides::target) lengths.source = longer(lengths.source);
  if (sides != Sides::source) lengths.target = longer(lengths.target);
  return lengths;
}

}  // namespace argosy::data
