#include "data/transforms/numerals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "data/transforms/filter.hpp"
#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Numerals&) {
  static constexpr config::KeyText texts[] = {
      {"threshold", "numerals: least share of the digits 1 to 9 that both sides have, 0 to 1"},
  };
  return texts;
}

void validate(const Numerals& config, config::Problems& problems) {
  require_in(problems, "/threshold", config.threshold, 0., 1.);
}

namespace {

/// How often each digit occurs; 0 is not counted.
std::array<std::int64_t, 10> digits_of(std::string_view text) {
  std::array<std::int64_t, 10> counts{};
  for (std::size_t at = 0; at < text.size();) {
    const int digit = tokenizer::digit_value(tokenizer::next_character(text, at));
    if (digit > 0) ++counts[static_cast<std::size_t>(digit)];
  }
  return counts;
}

}  // namespace

std::unique_ptr<const Transform> Numerals::make(const Materials&) const {
  const auto find = [least = threshold](std::string_view source,
                                        std::string_view target) -> std::optional<std::string> {
    const auto a = digits_of(source), b = digits_of(target);
    std::int64_t common = 0, all = 0;
    for (std::size_t digit = 1; digit < a.size(); ++digit) {
      common += std::min(a[digit], b[digit]);
      all += a[digit] + b[digit];
    }
    const double share = all == 0 ? 1 : 2 * static_cast<double>(common) / static_cast<double>(all);
    if (share >= least) return std::nullopt;
    return fmt::format("{:.3g} of the digits are on both sides, at least {}", share, least);
  };
  return make_filter(type, fmt::format("{}", threshold), on_pairs(find));
}

}  // namespace argosy::data
