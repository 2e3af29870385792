#pragma once

#include <optional>
#include <string>
#include <string_view>

/// The characters that byte-level tokenizers (GPT-2 and its successors) write for bytes: a printable Latin-1 character
/// for itself, the others from U+0100 on, in order.
namespace argosy::tokenizer {

/// A character for each byte of `bytes`.
void append_as_byte_characters(std::string& text, std::string_view bytes);
/// The bytes of `text`, if all its characters stand for bytes.
[[nodiscard]] std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace argosy::tokenizer
