#include "tokenizer/trie.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace argosy::tokenizer {

Trie::Trie(std::vector<std::pair<std::string, std::int32_t>> strings) {
  std::ranges::reverse(strings);  // so that the last of equal strings stays
  std::ranges::stable_sort(strings, {}, &std::pair<std::string, std::int32_t>::first);
  const auto equal = std::ranges::unique(strings, {}, &std::pair<std::string, std::int32_t>::first);
  strings.erase(equal.begin(), equal.end());
  if (!strings.empty() && strings.front().first.empty()) {
    empty_ = strings.front().second;
    strings.erase(strings.begin());
  }
  roots_.fill(-1);

  struct Range {
    std::int32_t parent;  // -1: the root
    std::size_t begin, end, depth;
  };
  // Level by level, so that the children of a node are next to each other.
  std::vector<Range> level{{-1, 0, strings.size(), 0}}, next;
  for (; !level.empty(); level = std::exchange(next, {})) {
    for (const Range& range : level) {
      if (range.parent >= 0)
        nodes_[static_cast<std::size_t>(range.parent)].children = narrow<std::int32_t>(nodes_.size());
      std::uint16_t children = 0;
      for (std::size_t begin = range.begin; begin < range.end;) {
        const auto label = static_cast<std::uint8_t>(strings[begin].first[range.depth]);
        std::size_t end = begin;
        while (end < range.end && static_cast<std::uint8_t>(strings[end].first[range.depth]) == label) ++end;
        const auto node = narrow<std::int32_t>(nodes_.size());
        nodes_.push_back({.label = label});
        if (range.parent < 0) roots_[label] = node;
        if (strings[begin].first.size() == range.depth + 1) nodes_.back().number = strings[begin++].second;
        if (begin < end) next.push_back({node, begin, end, range.depth + 1});
        begin = end;
        ++children;
      }
      if (range.parent >= 0) nodes_[static_cast<std::size_t>(range.parent)].size = children;
    }
  }
}

std::int32_t Trie::find(std::string_view text) const {
  std::int32_t number = text.empty() ? empty_ : -1;
  prefixes(text, [&](std::size_t length, std::int32_t value) {
    if (length == text.size()) number = value;
  });
  return number;
}

}  // namespace argosy::tokenizer
