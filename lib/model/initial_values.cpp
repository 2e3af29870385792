#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "core/random.hpp"
#include "model/model.hpp"

namespace argosy::model {
namespace {

std::uint64_t name_hash(const std::string& name) {  // FNV-1a
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

/// Writes elements [begin, end) of a parameter that is not constant.
void draw(const spec::Parameter& param, std::uint64_t seed, std::int64_t begin, std::int64_t end, float* values) {
  const spec::Initial& initial = param.initial;
  const std::uint64_t name = name_hash(param.name);
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  const std::int64_t columns = param.shape.back();
  auto part = param.parts.begin();
  std::int64_t part_end = part == param.parts.end() ? param.numel() : part->rows * columns;
  PhiloxBlock block{};
  std::int64_t block_index = -1, pair_index = -1;
  double radius = 0, angle = 0;
  for (std::int64_t e = begin; e < end; ++e) {
    if (e / 4 != block_index) {
      block_index = e / 4;
      const auto low = static_cast<std::uint64_t>(block_index);
      block = philox(key, {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                           static_cast<std::uint32_t>(name), static_cast<std::uint32_t>(name >> 32)});
    }
    while (e >= part_end) part_end += (++part)->rows * columns;
    const double deviation =
        part == param.parts.end() ? initial.deviation : part->deviation.value_or(initial.deviation);
    if (initial.uniform > 0) {
      const double unit = (block[static_cast<std::size_t>(e % 4)] + 0.5) * 0x1p-32;
      values[e - begin] = static_cast<float>(initial.uniform * (2 * unit - 1));
      continue;
    }
    if (e / 2 != pair_index) {
      pair_index = e / 2;
      const auto pair = static_cast<std::size_t>(e % 4 / 2 * 2);
      radius = std::sqrt(-2 * std::log((block[pair] + 1.0) * 0x1p-32));
      angle = 2 * std::numbers::pi * block[pair + 1] * 0x1p-32;
    }
    const double normal = radius * (e % 2 == 0 ? std::cos(angle) : std::sin(angle));
    values[e - begin] = initial.zero_row == e / columns ? 0.0F : static_cast<float>(deviation * normal);
  }
}

}  // namespace

void initial_values(const spec::Parameter& param, std::uint64_t seed, std::int64_t begin, std::int64_t end,
                    float* values) {
  ARGOSY_CHECK(0 <= begin && begin <= end && end <= param.numel(), "[{}, {}) of {}", begin, end, param.name);
  const spec::Initial& initial = param.initial;
  if (initial.deviation == 0 && initial.uniform == 0) {
    for (std::int64_t e = begin; e < end; ++e) {
      values[e - begin] = initial.dead_from && e >= *initial.dead_from ? -1e4F : static_cast<float>(initial.constant);
    }
    return;
  }
  constexpr std::int64_t grain = 1 << 14;
  at::parallel_for(begin, end, grain, [&](std::int64_t first, std::int64_t last) {
    draw(param, seed, first, last, values + (first - begin));
  });
}

}  // namespace argosy::model
