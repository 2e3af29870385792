#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// File names that Argosy builds from names given by users. They fit the limits of file systems, and are recognized by
/// their full spelling, so that no other file is taken for one of them. Pure.
namespace argosy {

/// Longest file name on Linux, in bytes.
inline constexpr std::size_t longest_name_bytes = 255;

/// The value of 1 to 18 decimal digits, so that the sum of two fits 64 bits; nullopt for any other text.
[[nodiscard]] std::optional<std::int64_t> count_in(std::string_view digits);
/// The number that the whole text spells, to a base if one is given; nullopt for any other text.
template <class Number, class... Base>
[[nodiscard]] std::optional<Number> number_in(std::string_view text, Base... base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional{number} : std::nullopt;
}
/// Exactly `digits` lower-case hex digits.
[[nodiscard]] bool is_hex(std::string_view text, std::size_t digits);
/// Decimal digits alone, at least `least` of them.
[[nodiscard]] bool is_decimal(std::string_view text, std::size_t least = 1);
/// The first bytes of a name, at most `limit`, cut at the end of a UTF-8 character.
[[nodiscard]] std::string cut_name(std::string_view name, std::size_t limit);
/// The name itself if `spare` more bytes fit after it; else its beginning and a hash of the whole.
[[nodiscard]] std::string fitting_name(std::string_view name, std::size_t spare);

/// The temporary name next to `name` under which its new content is written.
[[nodiscard]] std::string partial_name(std::string_view name);
/// The name that a partial_name() was made from; nullopt for any other name.
[[nodiscard]] std::optional<std::string> name_of_partial(std::string_view partial);

}  // namespace argosy
