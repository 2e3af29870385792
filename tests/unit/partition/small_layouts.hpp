#pragma once

#include <vector>

#include "partition/flat_space.hpp"

namespace argosy::partition::test {

/// Every layout of up to three nodes of one to four ranks, and of four nodes of one or two: 100 of them, most uneven.
inline std::vector<Layout> small_layouts() {
  std::vector<Layout> layouts;
  for (int a = 1; a <= 4; ++a) {
    layouts.emplace_back(std::vector{a});
    for (int b = 1; b <= 4; ++b) {
      layouts.emplace_back(std::vector{a, b});
      for (int c = 1; c <= 4; ++c) layouts.emplace_back(std::vector{a, b, c});
    }
  }
  for (int bits = 0; bits < 16; ++bits)
    layouts.emplace_back(std::vector{1 + bits / 8, 1 + bits / 4 % 2, 1 + bits / 2 % 2, 1 + bits % 2});
  return layouts;
}

/// Parameter lists with sizes that divide by nothing, empty parameters and every mix of decay.
inline std::vector<std::vector<ParamSpec>> small_units() {
  return {
      {},
      {{"bias", {1600}, false}},
      {{"scalar", {}, true}},
      {{"weight", {37, 41}, true}, {"norm", {37}, false}, {"empty", {0, 5}, true}, {"bias", {41}, false}},
      {{"a", {255}, true}, {"b", {256}, true}, {"c", {257}, true}, {"long", {3, 1601}, true}},
  };
}

}  // namespace argosy::partition::test
