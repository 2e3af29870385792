#include "core/utf8.hpp"

namespace argosy {
namespace {

struct Lead {
  int size_bytes;          // 0: no lead byte
  std::uint8_t low, high;  // range of the second byte
};

Lead lead_of(std::uint8_t byte) noexcept {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0)
    return {3, static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5)
    return {4, static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

std::uint8_t byte_at(std::string_view text, std::size_t at) noexcept { return static_cast<std::uint8_t>(text[at]); }

/// Bytes at the front that fit the lead, at most its size.
int fitting_bytes(std::string_view text, const Lead& lead) noexcept {
  int fitting = 1;
  for (; fitting < lead.size_bytes && static_cast<std::size_t>(fitting) < text.size(); ++fitting) {
    const std::uint8_t byte = byte_at(text, static_cast<std::size_t>(fitting));
    if (byte < (fitting == 1 ? lead.low : 0x80) || byte > (fitting == 1 ? lead.high : 0xBF)) break;
  }
  return fitting;
}

}  // namespace

Utf8Character decode_utf8(std::string_view text) noexcept {
  const std::uint8_t first = byte_at(text, 0);
  if (first < 0x80) return {1, first};
  const Lead lead = lead_of(first);
  if (lead.size_bytes == 0 || fitting_bytes(text, lead) < lead.size_bytes) return {};
  char32_t code = static_cast<char32_t>(first & (0x7F >> lead.size_bytes));
  for (int i = 1; i < lead.size_bytes; ++i) code = code << 6 | (byte_at(text, static_cast<std::size_t>(i)) & 0x3FU);
  return {lead.size_bytes, code};
}

bool is_cut_utf8(std::string_view text) noexcept {
  if (text.empty()) return false;
  const Lead lead = lead_of(byte_at(text, 0));
  return lead.size_bytes > 1 && text.size() < static_cast<std::size_t>(lead.size_bytes) &&
         static_cast<std::size_t>(fitting_bytes(text, lead)) == text.size();
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const int size = decode_utf8(text.substr(at)).size_bytes;
    if (size == 0) return at;
    at += static_cast<std::size_t>(size);
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  while (const auto at = first_invalid_utf8(text)) {
    out.append(text.substr(0, *at)).append("\xEF\xBF\xBD");
    text.remove_prefix(*at + 1);
  }
  return out.append(text);
}

}  // namespace argosy
