#include "decode/choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace argosy::decode {

void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> ids, float penalty) {
  std::vector<std::int32_t> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const std::int32_t id : distinct) {
    float& z = logits[static_cast<std::size_t>(id)];
    z = z > 0 ? z / penalty : z * penalty;
  }
}

void forbid_repeated_ngrams(std::span<float> logits, std::span<const std::int32_t> ids, std::int64_t n) {
  const auto before = static_cast<std::size_t>(n - 1);  // ids of an n-gram before its last one
  if (ids.size() < before) return;
  const auto end = ids.last(before);
  for (std::size_t i = 0; i + before < ids.size(); ++i) {
    if (std::equal(end.begin(), end.end(), ids.begin() + static_cast<std::ptrdiff_t>(i)))
      logits[static_cast<std::size_t>(ids[i + before])] = -std::numeric_limits<float>::infinity();
  }
}

Draw draw(std::span<const float> logits, const DrawOptions& options, double uniform) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float z : logits) total += std::exp(static_cast<double>(z - highest));
  const auto log_p = [&](std::size_t id) {
    return static_cast<float>(static_cast<double>(logits[id] - highest) - std::log(total));
  };
  if (std::isnan(total)) return {0, std::numeric_limits<float>::quiet_NaN()};

  // The ids that can be drawn: all in their order, or the most probable ones, best first.
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const bool cuts_k = options.top_k > 0 && static_cast<std::size_t>(options.top_k) < ids.size();
  if (const bool cuts_p = options.top_p < 1; cuts_k || cuts_p) {
    const auto kept = cuts_k ? ids.begin() + options.top_k : ids.end();
    std::partial_sort(ids.begin(), kept, ids.end(), [&](std::size_t a, std::size_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    ids.erase(kept, ids.end());
  }
  std::vector<double> sums;  // of the weights of the ids up to here
  sums.reserve(ids.size());
  double sum = 0;
  for (const std::size_t id : ids)
    sums.push_back(sum += std::exp(static_cast<double>(logits[id] - highest) / options.temperature));
  if (options.top_p < 1) {
    const auto enough = std::lower_bound(sums.begin(), sums.end(), options.top_p * sum);
    if (enough != sums.end()) sums.erase(enough + 1, sums.end());
  }
  // Excluded ids add nothing, so that none of them is the first to exceed a number.
  const auto drawn = std::upper_bound(sums.begin(), sums.end() - 1, uniform * sums.back());
  const std::size_t id = ids[static_cast<std::size_t>(drawn - sums.begin())];
  return {static_cast<std::int64_t>(id), log_p(id)};
}

}  // namespace argosy::decode
