#pragma once

#include <set>
#include <tuple>
#include <vector>

/// Few cells of a large matrix of choices that hold every pair of values of any two axes.
namespace argosy::test {

/// One index an axis; `sizes`: values of each axis. Greedy, the same cells each time.
inline std::vector<std::vector<int>> pairwise(const std::vector<int>& sizes) {
  using Pair = std::tuple<std::size_t, int, std::size_t, int>;
  std::set<Pair> missing;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    for (std::size_t b = a + 1; b < sizes.size(); ++b)
      for (int i = 0; i < sizes[a]; ++i)
        for (int j = 0; j < sizes[b]; ++j) missing.insert({a, i, b, j});
  }
  std::vector<std::vector<int>> cells;
  while (!missing.empty()) {
    const auto [first_axis, first, second_axis, second] = *missing.begin();
    std::vector<int> cell(sizes.size(), -1);
    cell[first_axis] = first;
    cell[second_axis] = second;
    const auto gain = [&](std::size_t axis, int value) {
      int pairs = 0;
      for (std::size_t other = 0; other < sizes.size(); ++other) {
        if (other == axis || cell[other] < 0) continue;
        const Pair pair = other < axis ? Pair{other, cell[other], axis, value} : Pair{axis, value, other, cell[other]};
        pairs += static_cast<int>(missing.count(pair));
      }
      return pairs;
    };
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      if (cell[axis] >= 0) continue;
      int best = static_cast<int>(cells.size()) % sizes[axis];  // where nothing is gained: in turns
      for (int value = 0; value < sizes[axis]; ++value)
        if (gain(axis, value) > gain(axis, best)) best = value;
      cell[axis] = best;
    }
    for (std::size_t a = 0; a < sizes.size(); ++a)
      for (std::size_t b = a + 1; b < sizes.size(); ++b) missing.erase({a, cell[a], b, cell[b]});
    cells.push_back(std::move(cell));
  }
  return cells;
}

/// All cells.
inline std::vector<std::vector<int>> product(const std::vector<int>& sizes) {
  std::vector<std::vector<int>> cells{{}};
  for (const int size : sizes) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& cell : cells)
      for (int value = 0; value < size; ++value) {
        longer.push_back(cell);
        longer.back().push_back(value);
      }
    cells = std::move(longer);
  }
  return cells;
}

}  // namespace argosy::test
