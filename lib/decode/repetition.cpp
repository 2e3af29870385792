#include "decode/repetition.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace argosy::decode {
namespace {

/// Whether some 1 to 4 pieces stand at least four times in a row.
bool repeats_itself(std::span<const std::int32_t> pieces) {
  constexpr std::size_t longest = 4, times = 4;
  for (std::size_t n = 1; n <= longest; ++n) {
    for (std::size_t i = n, equal = 0; i < pieces.size(); ++i) {
      equal = pieces[i] == pieces[i - n] ? equal + 1 : 0;
      if (equal == n * (times - 1)) return true;
    }
  }
  return false;
}

}  // namespace

Repetition repetition_in(std::span<const std::vector<std::int32_t>> lines) {
  if (lines.empty()) return {};
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  std::unordered_map<std::int32_t, std::int64_t> counts;
  std::int64_t pieces = 0, most = 0;
  for (const std::vector<std::int32_t>& line : lines) {
    pieces += std::ssize(line);
    for (const std::int32_t piece : line) most = std::max(most, ++counts[piece]);
  }
  const std::set<std::vector<std::int32_t>> different(lines.begin(), lines.end());
  const std::int64_t all = std::ssize(lines);
  return {.distinct = share(std::ssize(different), all),
          .top_piece = share(most, pieces),
          .repeating = share(std::ranges::count_if(lines, repeats_itself), all)};
}

}  // namespace argosy::decode
