#include "tokenizer/charsmap.hpp"

#include <array>
#include <cstring>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::tokenizer {
namespace {

/// The bytes of base64 text, or nothing if it is none.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::array<int, 256> values{};
  values.fill(-1);
  for (std::size_t value = 0; value < digits.size(); ++value)
    values[static_cast<unsigned char>(digits[value])] = narrow<int>(value);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (const char digit : text) {
    const int value = values[static_cast<unsigned char>(digit)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(bits >> held & 0xFF);
    }
  }
  return bytes;
}

}  // namespace

Charsmap::Charsmap(const JsonNode& node) {
  const auto bytes = from_base64(node.text());
  const std::string wanted = "a map of characters in base64";
  std::uint32_t size_bytes = 0;
  if (!bytes || bytes->size() < sizeof size_bytes) node.refuse(wanted, "other text");
  std::memcpy(&size_bytes, bytes->data(), sizeof size_bytes);
  const std::size_t rest = bytes->size() - sizeof size_bytes;
  if (size_bytes > rest || size_bytes < sizeof(std::uint32_t))
    node.refuse(wanted, fmt::format("a table of {} bytes in {}", size_bytes, rest));
  units_.resize(size_bytes / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes->data() + sizeof size_bytes, units_.size() * sizeof(std::uint32_t));
  replacements_ = bytes->substr(sizeof size_bytes + units_.size() * sizeof(std::uint32_t));
  if (first_invalid_utf8(replacements_)) node.refuse(wanted, "replacements that are not UTF-8");
}

std::optional<std::string_view> Charsmap::replacement(std::string_view part) const {
  const auto offset = [](std::uint32_t unit) { return std::size_t{unit >> 10U} << ((unit & (1U << 9U)) >> 6U); };
  std::size_t at = offset(units_.front());
  for (const char letter : part) {
    const std::uint32_t byte = static_cast<unsigned char>(letter);
    at ^= byte;
    if (byte == 0 || at >= units_.size()) return std::nullopt;
    const std::uint32_t unit = units_[at];
    if ((unit & (1U << 31U | 0xFFU)) != byte) return std::nullopt;
    at ^= offset(unit);
    if ((unit >> 8U & 1U) == 0) continue;
    if (at >= units_.size()) return std::nullopt;
    const std::size_t begin = units_[at] & ((1U << 31U) - 1);
    // An offset into the middle of a character is as damaged as one past the end.
    if (begin >= replacements_.size() || (static_cast<unsigned char>(replacements_[begin]) & 0xC0U) == 0x80U)
      return std::nullopt;
    const std::size_t end = replacements_.find('\0', begin);
    return std::string_view{replacements_}.substr(begin, end == std::string::npos ? end : end - begin);
  }
  return std::nullopt;
}

std::string Charsmap::applied(std::string_view text) const {
  constexpr std::size_t longest = 6;
  std::string out;
  out.reserve(text.size());
  each_grapheme(text, [&](std::string_view cluster) {
    check_growth(text.size(), out.size());
    if (cluster.size() < longest) {
      if (const auto known = replacement(cluster)) {
        out += *known;
        return;
      }
    }
    for (std::size_t at = 0, begin = 0; at < cluster.size(); begin = at) {
      static_cast<void>(next_character(cluster, at));
      const std::string_view character = cluster.substr(begin, at - begin);
      out += replacement(character).value_or(character);
    }
  });
  return out;
}

}  // namespace argosy::tokenizer
