#include "data/transforms/punctuation.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "data/transforms/filter.hpp"
#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Punctuation&) {
  static constexpr config::KeyText texts[] = {
      {"threshold",
       "punctuation: most punctuation, digits and symbols, as a share of the characters of a side, 0 to 1"},
  };
  return texts;
}

void validate(const Punctuation& config, config::Problems& problems) {
  require_in(problems, "/threshold", config.threshold, 0., 1.);
}

std::unique_ptr<const Transform> Punctuation::make(const Materials&) const {
  const auto find = [most = threshold](std::string_view text) -> std::optional<std::string> {
    std::int64_t marks = 0, all = 0;
    for (std::size_t at = 0; at < text.size();) {
      const char32_t c = tokenizer::next_character(text, at);
      if (tokenizer::is_space(c)) continue;
      ++all;
      marks += tokenizer::is_punctuation(c) || tokenizer::is_number(c) || tokenizer::is_symbol(c) ? 1 : 0;
    }
    if (static_cast<double>(marks) <= most * static_cast<double>(all)) return std::nullopt;
    return fmt::format("{} of {} characters are punctuation, digits or symbols, at most {} of them", marks, all, most);
  };
  return make_filter(type, fmt::format("{}", threshold), on_each_side(find));
}

}  // namespace argosy::data
