#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. A byte that fits nowhere is one
/// fault and decoding goes on with the next byte, as GNU wc does.
namespace argosy {

/// Length in bytes (1 to 4) of the character at the front of `text` and its code point; 0 when the first byte fits
/// nowhere. `text` must not be empty.
struct Utf8Character {
  int size_bytes = 0;
  char32_t code = 0;
};
[[nodiscard]] Utf8Character decode_utf8(std::string_view text) noexcept;

/// True when `text` is a proper beginning of a character that more bytes could complete.
[[nodiscard]] bool is_cut_utf8(std::string_view text) noexcept;

/// Offset of the first byte that fits nowhere.
[[nodiscard]] std::optional<std::size_t> first_invalid_utf8(std::string_view text) noexcept;

/// The text with U+FFFD in place of each byte that fits nowhere.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

}  // namespace argosy
