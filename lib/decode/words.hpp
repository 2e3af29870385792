#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Words as Python's str.split finds them, which sacreBLEU's scores build on: white space is Unicode's.
namespace argosy::decode {

/// Length in bytes of the white space that starts at `at`; 0 if none starts there.
[[nodiscard]] std::size_t space_at(std::string_view text, std::size_t at);

[[nodiscard]] std::vector<std::string> words_of(std::string_view text);

}  // namespace argosy::decode
