#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Names of files that Argosy composes of names that users give: they have to fit into a file system, and to be known
/// again in full, so that nothing else is ever taken for them. Pure.
namespace argosy {

/// Bytes of the longest name that Linux's file systems take.
inline constexpr std::size_t longest_name_bytes = 255;

/// Exactly `digits` lower-case hex digits.
[[nodiscard]] bool is_hex(std::string_view text, std::size_t digits);
/// Decimal digits alone, at least `least` of them.
[[nodiscard]] bool is_decimal(std::string_view text, std::size_t least = 1);
/// The first bytes of a name, at most `limit` of them, cut where a UTF-8 character ends.
[[nodiscard]] std::string cut_name(std::string_view name, std::size_t limit);
/// The name itself where `spare` more bytes fit behind it; else its beginning and a hash of the whole.
[[nodiscard]] std::string fitting_name(std::string_view name, std::size_t spare);

/// The temporary name next to `name` under which its new content is written.
[[nodiscard]] std::string partial_name(std::string_view name);
/// The name that a partial_name() was made of; nullopt for any other name.
[[nodiscard]] std::optional<std::string> name_of_partial(std::string_view partial);

}  // namespace argosy
