#include "data/transforms/terminal_punctuation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "data/transforms/filter.hpp"
#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const TerminalPunctuation&) {
  static constexpr config::KeyText texts[] = {
      {"threshold",
       "terminal_punctuation: least score of a pair, at most 0. -2 accepts differences and surplus of up to 6 marks"},
  };
  return texts;
}

void validate(const TerminalPunctuation& config, config::Problems& problems) {
  require_in(problems, "/threshold", config.threshold, -1e3, 0.);
}

namespace {

std::int64_t terminal_marks(std::string_view text) {
  std::int64_t marks = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = tokenizer::next_character(text, at);
    marks += character == U'.' || character == U'?' || character == U'!' || character == U'\u2026' ? 1 : 0;
  }
  return marks;
}

}  // namespace

std::unique_ptr<const Transform> TerminalPunctuation::make(const Materials&) const {
  const auto find = [least = threshold](std::string_view source,
                                        std::string_view target) -> std::optional<std::string> {
    const std::int64_t a = terminal_marks(source), b = terminal_marks(target), none = 0;
    const std::int64_t surplus = std::abs(a - b) + std::max(none, a - 1) + std::max(none, b - 1);
    const double score = -std::log(static_cast<double>(surplus + 1));
    if (score >= least) return std::nullopt;
    return fmt::format("{} and {} marks at ends of sentences, score {:.3g}, at least {}", a, b, score, least);
  };
  return make_filter(type, fmt::format("{}", threshold), on_pairs(find));
}

}  // namespace argosy::data
