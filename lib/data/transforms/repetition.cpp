#include "data/transforms/repetition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "data/transforms/filter.hpp"
#include "data/transforms/ranges.hpp"
#include "tokenizer/unicode.hpp"

namespace argosy::data {

std::span<const config::KeyText> key_texts(const Repetition&) {
  static constexpr config::KeyText texts[] = {
      {"count", "repetition: copies after a string that make it a repetition"},
      {"min", "repetition: fewest characters of the string"},
      {"max", "repetition: most characters of the string"},
  };
  return texts;
}

void validate(const Repetition& config, config::Problems& problems) {
  constexpr std::int64_t most_count = 1000, most_characters = 1000;
  require_in(problems, "/count", config.count, 1, most_count);
  require_in(problems, "/min", config.min, 1, most_characters);
  require_in(problems, "/max", config.max, 1, most_characters);
  problems.require(config.min <= config.max, "/max", fmt::format("at least min ({})", config.min),
                   fmt::format("{}", config.max));
}

namespace {

/// A text as its characters that are no space, and how many spaces stand before each, so that a repetition is a stretch
/// in which every character is the one `period` places further on, whatever spaces separate the copies. At the end
/// stands a character that no other equals.
struct Unspaced {
  std::vector<char32_t> characters;
  std::vector<std::int64_t> spaces_before;

  explicit Unspaced(std::string_view text) {
    characters.reserve(text.size() + 1);
    spaces_before.reserve(text.size() + 1);
    std::int64_t spaces = 0;
    for (std::size_t at = 0; at < text.size();) {
      const char32_t character = tokenizer::next_character(text, at);
      if (tokenizer::is_space(character)) {
        ++spaces;
        continue;
      }
      characters.push_back(character);
      spaces_before.push_back(std::exchange(spaces, 0));
    }
    constexpr char32_t end_of_text = 0xFFFFFFFF;
    characters.push_back(end_of_text);
    spaces_before.push_back(spaces);
  }
};

class RepetitionScan {
 public:
  RepetitionScan(const Repetition& config, std::string_view text)
      : config_(config), text_(text), size_(std::ssize(text_.characters) - 1) {}

  /// Where the first string begins that has enough copies, among the characters that are no space, and how many of
  /// these it has. {0, 0}: none.
  struct Found {
    std::int64_t at = 0, period = 0;
  };
  Found find() {
    for (std::int64_t period = 1; period <= config_.max && (config_.count + 1) * period <= size_; ++period)
      if (const Found found = find(period); found.period > 0) return found;
    return {};
  }
  [[nodiscard]] std::string spelled(Found found) const {
    std::string spelling;
    for (std::int64_t at = found.at; at < found.at + found.period; ++at) {
      if (at > found.at) spelling.append(static_cast<std::size_t>(spaces_before(at)), ' ');
      tokenizer::append_utf8(spelling, text_.characters[static_cast<std::size_t>(at)]);
    }
    return spelling;
  }

 private:
  [[nodiscard]] std::int64_t spaces_before(std::int64_t at) const {
    return text_.spaces_before[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] bool equal(std::int64_t at, std::int64_t period) const {
    return text_.characters[static_cast<std::size_t>(at)] == text_.characters[static_cast<std::size_t>(at + period)];
  }

  /// A repetition of this period is a run of count x period equal characters, so it contains one of every
  /// (count x period)-th character. Only these are looked at, and what is next to equal ones.
  Found find(std::int64_t period) {
    const std::int64_t length = config_.count * period, end = size_ - period;
    for (std::int64_t probe = length - 1; probe < end; probe += length) {
      if (!equal(probe, period)) continue;
      std::int64_t first = probe, last = probe + 1;
      while (first > 0 && equal(first - 1, period)) --first;
      while (last < end && equal(last, period)) ++last;
      if (last - first >= length)
        if (const Found found = find_in(first, last, period); found.period > 0) return found;
      probe += (last - probe) / length * length;  // probes up to the last are in this run
    }
    return {};
  }

  /// Of a run of equal characters: whether spaces agree, too, and the string is long enough and not too long.
  Found find_in(std::int64_t first, std::int64_t last, std::int64_t period) {
    const std::int64_t length = config_.count * period;
    const auto differ = [&](std::int64_t at) { return spaces_before(at) != spaces_before(at + period) ? 1 : 0; };
    // Over the characters [at, at + length): how many have other spaces before them than their copy has.
    std::int64_t differences = 0, spaces = 0;
    for (std::int64_t at = first; at < first + length; ++at) differences += differ(at);
    for (std::int64_t at = first + 1; at < first + period; ++at) spaces += spaces_before(at);
    for (std::int64_t at = first;; ++at) {
      std::int64_t between_copies = 0;  // there they may differ
      for (std::int64_t copy = 0; copy < config_.count; ++copy) between_copies += differ(at + copy * period);
      if (differences == between_copies && fits(at, period, period + spaces)) return {at, period};
      if (at + length >= last) return {};
      differences += differ(at + length) - differ(at);
      if (period > 1) spaces += spaces_before(at + period) - spaces_before(at + 1);
    }
  }

  /// characters: from the first to the last that is no space. If these are too few, spaces at the end of the string
  /// count, which all of its copies must have.
  [[nodiscard]] bool fits(std::int64_t at, std::int64_t period, std::int64_t characters) const {
    if (characters > config_.max) return false;
    const std::int64_t missing = config_.min - characters;
    if (missing <= 0) return true;
    for (std::int64_t copy = 1; copy <= config_.count + 1; ++copy)
      if (spaces_before(at + copy * period) < missing) return false;
    return true;
  }

  Repetition config_;
  Unspaced text_;
  std::int64_t size_;
};

}  // namespace

std::unique_ptr<const Transform> Repetition::make(const Materials&) const {
  const auto find = [config = *this](std::string_view text) -> std::optional<std::string> {
    RepetitionScan scan(config, text);
    const RepetitionScan::Found found = scan.find();
    if (found.period == 0) return std::nullopt;
    return fmt::format("\"{}\" is followed by at least {} copies", scan.spelled(found), config.count);
  };
  return make_filter(type, fmt::format("{} {} {}", count, min, max), on_each_side(find));
}

}  // namespace argosy::data
