#include <charconv>
#include <cmath>

#include "config/config.hpp"
#include "core/error.hpp"

namespace argosy::config {
namespace {

struct Suffix {
  char letter;
  double factor;
};
constexpr Suffix suffixes[] = {{'G', 1e9}, {'M', 1e6}, {'k', 1e3}};

[[noreturn]] void refuse(std::string_view text) {
  throw Error{Fault::config,
              {.wanted = "a period such as 500 or \"300ku\" (steps), \"2Mt\" (tgt_tokens) or \"1.5e\" (epochs)",
               .got = fmt::format("\"{}\"", text)}};
}

}  // namespace

Period Period::parse(std::string_view text) {
  Period period;
  const char* const end = text.data() + text.size();
  // fixed: the e of "2e" is the unit, not an exponent
  auto [at, error] = std::from_chars(text.data(), end, period.count, std::chars_format::fixed);
  if (error != std::errc{} || period.count < 0 || !std::isfinite(period.count)) refuse(text);
  for (const Suffix& suffix : suffixes) {
    if (at == end || *at != suffix.letter) continue;
    period.count *= suffix.factor;
    ++at;
  }
  while (at != end && *at == ' ') ++at;
  if (at != end) {
    if (*at == 't') {
      period.unit = Unit::tgt_token;
    } else if (*at == 'e') {
      period.unit = Unit::epoch;
    } else if (*at != 'u') {
      refuse(text);
    }
    ++at;
  }
  constexpr double most = 0x1p53;  // above it, not every number of steps or tgt_tokens can be told from the next
  if (period.count > most) refuse(text);
  const bool countable = period.unit == Unit::epoch || period.count == std::floor(period.count);
  if (at != end || !countable) refuse(text);
  return period;
}

std::string Period::text() const {
  if (unit == Unit::step) return fmt::format("{:.0f}", count);
  const char letter = unit == Unit::epoch ? 'e' : 't';
  for (const Suffix& suffix : suffixes) {
    if (count >= suffix.factor && std::fmod(count, suffix.factor) == 0)
      return fmt::format("{:.0f}{}{}", count / suffix.factor, suffix.letter, letter);
  }
  return fmt::format("{}{}", count, letter);
}

}  // namespace argosy::config
