#include "core/file_name.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/hash.hpp"
#include "core/random.hpp"

namespace argosy {
namespace {

constexpr std::string_view partial_mark = ".tmp-";
constexpr std::size_t partial_digits = 16;

}  // namespace

std::optional<std::int64_t> count_in(std::string_view digits) {
  constexpr std::size_t most = 18;
  if (digits.size() > most || !is_decimal(digits)) return std::nullopt;
  return number_in<std::int64_t>(digits);
}

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_decimal(std::string_view text, std::size_t least) {
  return text.size() >= least && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string cut_name(std::string_view name, std::size_t limit) {
  if (name.size() <= limit) return std::string{name};
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; };
  while (limit > 0 && continues(name[limit])) --limit;
  return std::string{name.substr(0, limit)};
}

std::string fitting_name(std::string_view name, std::size_t spare) {
  if (name.size() + spare <= longest_name_bytes) return std::string{name};
  constexpr std::size_t hash_bytes = 17;
  return fmt::format("{}-{:016x}", cut_name(name, longest_name_bytes - spare - hash_bytes), hash64(name));
}

std::string partial_name(std::string_view name) {
  constexpr std::size_t added = partial_mark.size() + partial_digits;
  return fmt::format("{}{}{}", cut_name(name, longest_name_bytes - added), partial_mark, random_hex(partial_digits));
}

std::optional<std::string> name_of_partial(std::string_view partial) {
  const std::size_t at = partial.rfind(partial_mark);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  if (!is_hex(partial.substr(at + partial_mark.size()), partial_digits)) return std::nullopt;
  return std::string{partial.substr(0, at)};
}

}  // namespace argosy
