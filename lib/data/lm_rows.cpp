#include "data/lm_rows.hpp"

#include <algorithm>

namespace argosy::data {

std::vector<LmRow> plan_packed_rows(std::span<const std::int64_t> positions, std::int64_t width, DocumentCut cut) {
  std::vector<LmRow> rows;
  std::int64_t room = 0;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    const std::int64_t size = positions[d];
    if (cut == DocumentCut::whole && size > room) room = 0;
    for (std::int64_t at = 0; at < size;) {
      if (room == 0) {
        rows.push_back({.first = d, .offset = at});
        room = width;
      }
      const std::int64_t count = std::min(room, size - at);
      at += count;
      room -= count;
      rows.back().positions += count;
      rows.back().tgt_tokens += count - (at == size ? 1 : 0);
    }
  }
  return rows;
}

std::vector<LmRow> plan_single_rows(std::span<const std::int64_t> positions, std::int64_t width) {
  std::vector<LmRow> rows;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    for (std::int64_t at = 0; at < positions[d] - 1; at += width) {
      const std::int64_t count = std::min(width, positions[d] - 1 - at);
      rows.push_back({.first = d, .offset = at, .positions = count, .tgt_tokens = count});
    }
  }
  return rows;
}

void add_row(LmBatcher& batcher, const LmRow& row, const DocumentIds& ids_of) {
  batcher.begin_row();
  std::int64_t offset = row.offset;
  std::uint64_t place = row.first;
  for (std::int64_t left = row.positions; left > 0; ++place) {
    const std::vector<std::int32_t> ids = ids_of(place);
    const std::int64_t count = std::min(left, static_cast<std::int64_t>(ids.size()) + 1 - offset);
    batcher.add(ids, offset, count);
    left -= count;
    offset = 0;
  }
}

}  // namespace argosy::data
