#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.hpp"
#include "data/transforms/transform.hpp"

namespace argosy::test {

/// Lengths of sentence pairs: a = exp(3.1 + .6 z1), b = a·exp(.2 z2), rounded, clipped to 1..200, EOS added (mean 28).
inline std::vector<data::Lengths> lognormal_lengths(std::size_t count) {
  RandomStream random{3, 1};
  const auto clipped = [](double x) { return static_cast<std::uint32_t>(std::clamp(std::round(x), 1.0, 200.0)) + 1; };
  std::vector<data::Lengths> lengths;
  lengths.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double a = std::exp(3.1 + 0.6 * random.normal()), b = a * std::exp(0.2 * random.normal());
    lengths.push_back({clipped(a), clipped(b)});
  }
  return lengths;
}

}  // namespace argosy::test
