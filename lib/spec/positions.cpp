#include "spec/positions.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace argosy::spec {

std::vector<double> rotary_factors(const RopeScaling& scaling, double theta, std::int64_t size) {
  std::vector<double> factors;
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const double frequency = std::pow(theta, static_cast<double>(-2 * i) / static_cast<double>(size)),
                 turns = static_cast<double>(scaling.original_max_positions) * frequency / (2 * std::numbers::pi),
                 span = scaling.high_freq_factor - scaling.low_freq_factor,
                 blend = std::clamp((turns - scaling.low_freq_factor) / span, 0.0, 1.0);
    factors.push_back((1 - blend) / scaling.factor + blend);
  }
  return factors;
}

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t i = 1; i <= heads; ++i) {
    const double step = i <= power ? 8.0 * static_cast<double>(i) : 4.0 * static_cast<double>(2 * (i - power) - 1);
    slopes.push_back(std::exp2(-step / static_cast<double>(power)));
  }
  return slopes;
}

std::int64_t relative_bucket(std::int64_t distance, bool bidirectional) {
  const std::int64_t buckets = bidirectional ? relative_buckets / 2 : relative_buckets, exact = buckets / 2;
  const std::int64_t base = bidirectional && distance > 0 ? buckets : 0;
  const std::int64_t away = bidirectional ? std::abs(distance) : std::max<std::int64_t>(0, -distance);
  if (away < exact) return base + away;
  const double octaves = std::log(static_cast<double>(away) / static_cast<double>(exact)) /
                         std::log(static_cast<double>(most_distance) / static_cast<double>(exact));
  const auto more = static_cast<std::int64_t>(octaves * static_cast<double>(buckets - exact));
  return base + std::min(exact + more, buckets - 1);
}

}  // namespace argosy::spec
