#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// A set of byte strings with a number each, searched for prefixes of a text. Immutable, for any number of threads.
namespace argosy::tokenizer {

class Trie {
 public:
  /// Of a string that occurs twice, the last counts. An empty one can be found, but is no prefix.
  explicit Trie(std::vector<std::pair<std::string, std::int32_t>> strings);

  /// Calls found(length, number) for each string that `text` begins with, from the shortest to the longest.
  template <class Found>
  void prefixes(std::string_view text, Found&& found) const {
    if (text.empty()) return;
    std::int32_t node = roots_[static_cast<unsigned char>(text.front())];
    for (std::size_t length = 1; node >= 0; ++length) {
      const Node& here = nodes_[static_cast<std::size_t>(node)];
      if (here.number >= 0) found(length, here.number);
      if (length == text.size()) return;
      node = child(here, static_cast<unsigned char>(text[length]));
    }
  }
  /// The number of a string; -1: not in the set.
  [[nodiscard]] std::int32_t find(std::string_view text) const;

 private:
  struct Node {
    std::int32_t number = -1;
    std::int32_t children = 0;  // the first of them; all are next to each other, by label
    std::uint16_t size = 0;
    std::uint8_t label = 0;
  };

  [[nodiscard]] std::int32_t child(const Node& of, std::uint8_t label) const {
    std::int32_t low = of.children, high = of.children + of.size;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      const std::uint8_t here = nodes_[static_cast<std::size_t>(middle)].label;
      if (here == label) return middle;
      if (here < label)
        low = middle + 1;
      else
        high = middle;
    }
    return -1;
  }

  std::array<std::int32_t, 256> roots_{};
  std::int32_t empty_ = -1;  // number of the empty string
  std::vector<Node> nodes_;
};

}  // namespace argosy::tokenizer
