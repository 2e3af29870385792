#pragma once

#include <boost/describe.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "data/transforms/transform.hpp"

/// Which sides of an example a transform changes.
namespace argosy::data {

enum class Sides { source, target, both };
BOOST_DESCRIBE_ENUM(Sides, source, target, both)

/// Calls change(ids) for source and target, or one of them.
template <class Change>
void change_ids(Example& example, Sides sides, Change&& change) {
  if (sides != Sides::target) change(example.source);
  if (sides != Sides::source) change(example.target);
}

/// Puts change(text) in the place of each text. What bears loss, and what does not, is changed apart.
template <class Change>
void change_texts(Example& example, Sides sides, Change&& change) {
  if (sides != Sides::target) example.source_text = change(std::string_view{example.source_text});
  if (sides == Sides::source) return;
  const std::string text = std::exchange(example.target_text, {});
  const std::vector<bool> bears = std::exchange(example.loss, {});
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    while (end < text.size() && (bears.empty() || bears[end] == bears[begin])) ++end;
    example.target_text += change(std::string_view{text}.substr(begin, end - begin));
    if (!bears.empty()) example.loss.resize(example.target_text.size(), bears[begin]);
  }
}

}  // namespace argosy::data
