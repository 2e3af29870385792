#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace argosy::decode {

/// Translation edit rate (Snover et al. 2006): the words inserted, removed and replaced, and the runs of words moved,
/// that make the hypothesis the reference, divided by the words of the reference. Equal to sacreBLEU's default: words
/// are in lower case and end at white space. The search for moves has the limits of tercom and of sacreBLEU: it is
/// greedy, compares words within 25 of the diagonal, and tries about 1,000 moves a line. Its time grows with the length
/// of a line, not with the square.
class TerCounts {
 public:
  static constexpr std::string_view settings = "TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no";

  void add(std::string_view hypothesis, std::string_view reference);
  /// 0 (equal) and more; above 100 when there are more edits than words in the reference. Without a word in any
  /// reference: 100 if a hypothesis has words, 0 if none has.
  [[nodiscard]] double score() const;
  [[nodiscard]] std::span<std::int64_t> counts() noexcept { return counts_; }

 private:
  std::array<std::int64_t, 2> counts_{};  // edits, reference words
};

}  // namespace argosy::decode
