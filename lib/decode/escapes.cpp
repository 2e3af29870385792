#include "decode/escapes.hpp"

namespace argosy::decode {
namespace {

constexpr std::string_view characters = "\n\r\t\\", letters = "nrt\\";

}  // namespace

std::string escaped(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const std::size_t i = characters.find(c);
    if (i == std::string_view::npos) {
      line += c;
    } else {
      (line += '\\') += letters[i];
    }
  }
  return line;
}

std::string unescaped(std::string_view line) {
  std::string text;
  text.reserve(line.size());
  for (std::size_t at = 0; at < line.size(); ++at) {
    const std::size_t i =
        line[at] == '\\' && at + 1 < line.size() ? letters.find(line[at + 1]) : std::string_view::npos;
    text += i == std::string_view::npos ? line[at] : characters[i];
    if (i != std::string_view::npos) ++at;
  }
  return text;
}

}  // namespace argosy::decode
