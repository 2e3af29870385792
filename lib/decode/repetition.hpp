#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Signs that a model translates everything alike, or cannot stop repeating itself.
namespace argosy::decode {

struct Repetition {
  double distinct = 1;   // different lines, as a share of all lines
  double top_piece = 0;  // share of the most frequent piece among all pieces
  double repeating = 0;  // share of the lines in which some 1 to 4 pieces stand at least four times in a row
};

/// lines: the ids of their pieces. Without lines: the values above.
[[nodiscard]] Repetition repetition_in(std::span<const std::vector<std::int32_t>> lines);

}  // namespace argosy::decode
