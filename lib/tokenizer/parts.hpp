#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_node.hpp"
#include "tokenizer/unicode.hpp"

/// A text on its way to ids: cut into parts, each of which is an added token already or goes to the model as one word.
namespace argosy::tokenizer {

struct Part {
  std::size_t begin = 0, end = 0;  // of Parts::text
  std::int32_t id = -1;            // of an added token; -1: a word
  bool first = false;              // begins where the input begins
};

struct Parts {
  std::string text;
  std::vector<Part> list;

  [[nodiscard]] std::string_view view(const Part& part) const {
    return std::string_view{text}.substr(part.begin, part.end - part.begin);
  }
  /// Adds text as a part, unless it is empty.
  void add(std::string_view of, bool first) {
    if (of.empty()) return;
    list.push_back({text.size(), text.size() + of.size(), -1, first});
    text += of;
  }
};

/// What becomes of the matches of a pattern when a part is cut.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
/// Throws Error{data} on an unknown name.
[[nodiscard]] Behavior behavior_of(const JsonNode& node);

/// Cuts [0, size) at `matches`, which ascend and do not overlap, into `cuts`. invert: what lies between the matches is
/// what matches.
void cut(std::size_t size, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Span>& cuts);

/// A pattern of tokenizer.json: {"String": …} or {"Regex": …}.
class Pattern {
 public:
  /// Throws Error{data}.
  explicit Pattern(const JsonNode& node);
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  static Pattern regex(std::string_view expression) { return Pattern(Regex(expression, "a pattern of Argosy")); }

  /// Searches text after text; one for each thread.
  class Search {
   public:
    /// Ascending, without overlaps; until the next call.
    [[nodiscard]] const std::vector<Span>& matches(std::string_view text);

   private:
    friend class Pattern;
    explicit Search(const Pattern& pattern);
    const Pattern* pattern_;
    std::optional<Regex::Search> regex_;
    std::vector<Span> matches_;
  };
  [[nodiscard]] Search search() const { return Search(*this); }
  /// The text with `content` in place of each match.
  [[nodiscard]] std::string replaced(std::string_view text, std::string_view content) const;

 private:
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace argosy::tokenizer
