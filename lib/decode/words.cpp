#include "decode/words.hpp"

namespace argosy::decode {

std::size_t space_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U; };
  const unsigned b0 = byte(0), b1 = byte(1), b2 = byte(2);
  if (b0 == ' ' || (b0 >= 0x09 && b0 <= 0x0d) || (b0 >= 0x1c && b0 <= 0x1f)) return 1;
  if (b0 == 0xc2 && (b1 == 0x85 || b1 == 0xa0)) return 2;  // NEL, NBSP
  if (b0 == 0xe1 && b1 == 0x9a && b2 == 0x80) return 3;    // U+1680
  if (b0 == 0xe2 && b1 == 0x80 && ((b2 >= 0x80 && b2 <= 0x8a) || b2 == 0xa8 || b2 == 0xa9 || b2 == 0xaf)) return 3;
  if (b0 == 0xe2 && b1 == 0x81 && b2 == 0x9f) return 3;  // U+205F
  if (b0 == 0xe3 && b1 == 0x80 && b2 == 0x80) return 3;  // U+3000
  return 0;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t space = space_at(text, i)) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
      i += space;
    } else {
      word += text[i++];
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

}  // namespace argosy::decode
