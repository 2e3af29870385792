#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "config/config.hpp"

/// Checks that the configurations of transforms share.
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

}  // namespace argosy::data
