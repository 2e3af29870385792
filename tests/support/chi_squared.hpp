#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

/// Pearson's test of drawn values against their probabilities.
namespace argosy::test {

/// Q(a, x), the regularised upper incomplete gamma function, as 1 - P(a, x) by the series of P.
inline double upper_gamma(double a, double x) {
  double term = 1 / a, sum = term;
  for (double n = a + 1; term > sum * 1e-16; ++n) sum += term *= x / n;
  return 1 - sum * std::exp(a * std::log(x) - x - std::lgamma(a));
}

/// How likely draws are to differ from `wanted` (probabilities, or weights of any sum) by as much as `counts` do. 0: a
/// value was drawn that is not in `wanted`. Values that are expected less than five times are taken together.
template <class Value>
double chi_squared_p(const std::map<Value, std::int64_t>& counts, const std::map<Value, double>& wanted) {
  double draws = 0, weights = 0, statistic = 0, rare_expected = 0, rare_counted = 0;
  for (const auto& [value, count] : counts) {
    if (!wanted.contains(value)) return 0;
    draws += static_cast<double>(count);
  }
  for (const auto& [value, weight] : wanted) weights += weight;
  int cells = 0;
  const auto add = [&](double counted, double expected) {
    statistic += (counted - expected) * (counted - expected) / expected;
    ++cells;
  };
  for (const auto& [value, weight] : wanted) {
    const auto found = counts.find(value);
    const double counted = found == counts.end() ? 0 : static_cast<double>(found->second);
    const double expected = draws * weight / weights;
    if (expected >= 5) {
      add(counted, expected);
    } else {
      rare_expected += expected;
      rare_counted += counted;
    }
  }
  if (rare_expected > 0.5) add(rare_counted, rare_expected);
  if (cells < 2) return std::numeric_limits<double>::quiet_NaN();  // nothing to compare: fails every bound
  return statistic == 0 ? 1 : upper_gamma((cells - 1) / 2.0, statistic / 2);
}

}  // namespace argosy::test
