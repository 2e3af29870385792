#include "tokenizer/byte_alphabet.hpp"

#include <array>
#include <cstdint>

#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteAlphabet {
  static constexpr std::size_t end = 256 + 68;        // 188 bytes stand for themselves
  std::array<std::array<char, 2>, 256> characters{};  // as UTF-8
  std::array<unsigned char, 256> sizes{};
  std::array<std::int16_t, end> bytes{};

  constexpr ByteAlphabet() {
    bytes.fill(-1);
    unsigned other = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const unsigned code = stands_for_itself(byte) ? byte : other++;
      bytes[code] = static_cast<std::int16_t>(byte);
      sizes[byte] = code < 0x80 ? 1 : 2;
      if (code < 0x80)
        characters[byte] = {static_cast<char>(code), '\0'};
      else
        characters[byte] = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
    }
  }
};
constexpr ByteAlphabet byte_alphabet;

}  // namespace

void append_as_byte_characters(std::string& text, std::string_view bytes) {
  for (const char byte : bytes) {
    const auto index = static_cast<unsigned char>(byte);
    text.append(byte_alphabet.characters[index].data(), byte_alphabet.sizes[index]);
  }
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at);
    if (character >= ByteAlphabet::end || byte_alphabet.bytes[character] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_alphabet.bytes[character]);
  }
  return bytes;
}

}  // namespace argosy::tokenizer
