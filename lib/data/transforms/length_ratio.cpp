#include "data/transforms/length_ratio.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "data/transforms/filter.hpp"
#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const LengthRatio&) {
  static constexpr config::KeyText texts[] = {
      {"threshold", "length_ratio: most words of the longer side for a word of the shorter one"},
  };
  return texts;
}

void validate(const LengthRatio& config, config::Problems& problems) {
  require_in(problems, "/threshold", config.threshold, 1., 1e6);
}

namespace {

std::int64_t words_of(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool space = tokenizer::is_space(tokenizer::next_character(text, at));
    words += !space && !inside ? 1 : 0;
    inside = !space;
  }
  return words;
}

}  // namespace

std::unique_ptr<const Transform> LengthRatio::make(const Materials&) const {
  const auto find = [most = threshold](std::string_view source, std::string_view target) -> std::optional<std::string> {
    const std::int64_t a = words_of(source), b = words_of(target);
    const auto [less, more] = std::minmax(a, b);
    if (less == 0 || static_cast<double>(more) <= most * static_cast<double>(less)) return std::nullopt;
    return fmt::format("{} and {} words, at most {} times as many", a, b, most);
  };
  return make_filter(type, fmt::format("{}", threshold), on_pairs(find));
}

}  // namespace argosy::data
