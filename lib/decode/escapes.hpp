#pragma once

#include <string>
#include <string_view>

/// Texts of several lines in one: \n, \r, \t and \\ stand for a line feed, a carriage return, a tab and a backslash.
namespace argosy::decode {

[[nodiscard]] std::string escaped(std::string_view text);
/// The inverse. A backslash before anything else stands for itself.
[[nodiscard]] std::string unescaped(std::string_view line);

}  // namespace argosy::decode
