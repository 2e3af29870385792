#pragma once

#include <cstdint>
#include <string>

#include "data/count.hpp"

namespace argosy::data {

/// Throws Error{data}. now: "other lines".
[[noreturn]] void throw_changed_text(const Path& path, const std::string& now);

/// Byte offset of line `line` (from 0) of a counted file; the file's size when it has no more lines. Reads at most one
/// block.
[[nodiscard]] std::uint64_t offset_of_line(const Files& files, const Path& path, const CountRecord& record,
                                           std::uint64_t line);

}  // namespace argosy::data
