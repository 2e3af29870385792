#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/batcher.hpp"
#include "data/data_config.hpp"

/// How documents of a language model become rows. Pure index arithmetic: a document of n ids has n + 1 positions, the
/// start token first; the last position (EOS) has no label.
namespace argosy::data {

/// A document as consecutive examples (lines).
struct LmDocument {
  std::uint64_t first = 0, examples = 0;
  std::int64_t ids = 0;
  [[nodiscard]] std::int64_t positions() const { return ids + 1; }
};

/// A row: from position `offset` of the document at place `first` of the order, over following documents, `positions`
/// long.
struct LmRow {
  std::uint64_t first = 0;
  std::int64_t offset = 0, positions = 0, tgt_tokens = 0;
  bool operator==(const LmRow&) const = default;
};

/// Lays documents (by their positions, in order) end to end into rows of at most `width`. split: every row but the last
/// is full; whole: a document that fits in one row is not cut.
[[nodiscard]] std::vector<LmRow> plan_packed_rows(std::span<const std::int64_t> positions, std::int64_t width,
                                                  DocumentCut cut);

/// One document piece a row; the last position of a document is left out, as it has no label.
[[nodiscard]] std::vector<LmRow> plan_single_rows(std::span<const std::int64_t> positions, std::int64_t width);

/// Ids of the document at a place of the order.
using DocumentIds = std::function<std::vector<std::int32_t>(std::uint64_t place)>;

/// Fills the batcher's next row.
void add_row(LmBatcher& batcher, const LmRow& row, const DocumentIds& ids_of);

}  // namespace argosy::data
