#include "tokenizer/parts.hpp"

#include <algorithm>
#include <array>

namespace argosy::tokenizer {

Behavior behavior_of(const JsonNode& node) {
  constexpr std::array names{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const std::string name = node.text();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) node.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", name);
  return static_cast<Behavior>(found - names.begin());
}

void cut(std::size_t size, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Span>& cuts) {
  cuts.clear();
  bool after_match = false;  // whether the stretch before was a match
  std::size_t end = 0;
  const auto add = [&](Span span, bool match) {
    match = match != invert;
    const bool before = std::exchange(after_match, match);
    switch (behavior) {
      case Behavior::removed:
        if (!match) cuts.push_back(span);
        return;
      case Behavior::isolated:
        cuts.push_back(span);
        return;
      case Behavior::contiguous:
        if (match == before && !cuts.empty())
          cuts.back().end = span.end;
        else
          cuts.push_back(span);
        return;
      case Behavior::merged_with_previous:
        if (match && !before && !cuts.empty())
          cuts.back().end = span.end;
        else
          cuts.push_back(span);
        return;
      case Behavior::merged_with_next:
        // From the right, a match joins the stretch after it, unless that is a match too: of several matches in a row,
        // only the last one does.
        if (!match && before && !cuts.empty())
          cuts.back().end = span.end;
        else
          cuts.push_back(span);
        return;
    }
  };
  for (const Span& match : matches) {
    if (match.begin > end) add({end, match.begin}, false);
    add(match, true);
    end = match.end;
  }
  if (size > end) add({end, size}, false);
}

Pattern::Pattern(const JsonNode& node) {
  if (const auto literal = node.find("String")) {
    literal_ = literal->text();
    if (literal_.empty()) literal->refuse("a string with characters", "an empty one");
  } else {
    const JsonNode expression = node.at("Regex");
    regex_.emplace(expression.text(), expression.where());
  }
}

Pattern::Search::Search(const Pattern& pattern) : pattern_(&pattern) {
  if (pattern.regex_) regex_ = pattern.regex_->search();
}

const std::vector<Span>& Pattern::Search::matches(std::string_view text) {
  if (regex_) return regex_->matches(text);
  matches_.clear();
  const std::string& literal = pattern_->literal_;
  for (std::size_t at = text.find(literal); at != text.npos; at = text.find(literal, at + literal.size()))
    matches_.push_back({at, at + literal.size()});
  return matches_;
}

std::string Pattern::replaced(std::string_view text, std::string_view content) const {
  std::string out;
  std::size_t end = 0;
  Search searched = search();
  for (const Span& match : searched.matches(text)) {
    out.append(text.substr(end, match.begin - end)).append(content);
    check_growth(text.size(), out.size());
    end = match.end;
  }
  return out.append(text.substr(end));
}

}  // namespace argosy::tokenizer
