#pragma once

#include <cstdint>
#include <vector>

#include "spec/model_config.hpp"

/// The numbers behind the kinds of positions (spec::Position), in fp64. Pure.
namespace argosy::spec {

/// What the angles theta^(-2i/size), i < size/2, of a rotary head of `size` are multiplied by. With λ the wavelength
/// and L original_max_positions: 1/factor where L/λ is at most low_freq_factor, 1 where it is at least
/// high_freq_factor, and a linear blend between (arXiv:2407.21783).
[[nodiscard]] std::vector<double> rotary_factors(const RopeScaling& scaling, double theta, std::int64_t size);

/// ALiBi: for each head, what a step of distance takes off a score: 2^(-8i/heads), i = 1 … heads. If `heads` is no
/// power of two: the slopes of the power below, then every other one of twice that (arXiv:2108.12409).
[[nodiscard]] std::vector<double> alibi_slopes(std::int64_t heads);

/// T5 (arXiv:1910.10683): the bucket of a key at `distance`, its position minus that of the query. Of the buckets of a
/// direction the first half are exact, the others grow by powers up to most_distance. bidirectional (encoder): the
/// upper half of the buckets is for later keys; else all are for earlier keys, and later ones have the first.
inline constexpr std::int64_t relative_buckets = 32, most_distance = 128;
[[nodiscard]] std::int64_t relative_bucket(std::int64_t distance, bool bidirectional);

}  // namespace argosy::spec
