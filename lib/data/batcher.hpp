#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/batch.hpp"
#include "data/data_config.hpp"
#include "data/tokenizer.hpp"

/// Lays ids out as batches, and documents of a language model as rows. Pure; shapes and masks are defined in batch.hpp.
namespace argosy::data {

/// Where the positions of an example begin (model.position_shift_max), in training.
struct PositionShift {
  std::int64_t source = 0, target = 0;
};

/// One translation example: ids with EOS at the end on both sides; an empty target leaves the target side out.
struct PairIds {
  std::span<const std::int32_t> source, target;
  std::uint64_t id = 0;
  const std::vector<bool>* loss = nullptr;  // of the target's ids; null or empty: all bear loss
  std::optional<PositionShift> shift{};
  std::optional<std::uint32_t> corpus{};  // for Batch::corpora: in all pairs of a batch or in none
};

/// A part of a document: its ids from `begin` on, of `size`.
struct DocumentPart {
  std::vector<std::int32_t> ids;
  std::vector<bool> loss;  // of these ids; empty: all bear loss
  std::int64_t begin = 0, size = 0;
  std::int64_t shift = 0;  // position of the first id of each part in a row
  std::optional<std::uint32_t> corpus{};
};

/// Rows of pairs, at least `source_width` and `target_width` wide. Throws Error{corrupt} for an id outside the live
/// ones.
[[nodiscard]] Batch batch_of_pairs(std::span<const PairIds> examples, const spec::Vocabulary& vocabulary,
                                   std::int64_t source_width = 0, std::int64_t target_width = 0);

/// Builds rows of language-model text. A document is its beginning (Vocabulary::start) and its ids; input position i
/// has the following id as label, except where that id begins a document. The prompt of a document in a row is its
/// positions up to the first that has a label, which is the last of the prompt; all of them if none has one. What
/// follows in another row of a document that is cut is a document of its own here, as it is for `positions`.
class LmBatcher {
 public:
  LmBatcher(const spec::Vocabulary& vocabulary, std::int64_t rows, std::int64_t width);

  void begin_row();
  /// Positions [from, from + count) of a document of `size + 1` positions: 0 is the start token, i is id i - 1. The
  /// part holds the ids from - 1 to from + count - 1, as far as they exist.
  void add(const DocumentPart& part, std::int64_t from, std::int64_t count);
  /// The batch, cut to its widest row, rounded up to a multiple of this as far as `width` allows.
  [[nodiscard]] Batch take(std::int64_t multiple = 1);

 private:
  const spec::Vocabulary& vocabulary_;
  Batch batch_;
  std::int64_t row_ = -1, at_ = 0, segment_ = 0;
};

// How documents become rows. A document of n ids has n + 1 positions, the start token first; the last position (EOS)
// has no label.

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

/// Reads ids [begin, end) of the document at a place of the order, as far as it has them; it may give more.
using DocumentReader = std::function<DocumentPart(std::uint64_t place, std::int64_t begin, std::int64_t end)>;

/// Fills the batcher's next row.
void add_row(LmBatcher& batcher, const LmRow& row, const DocumentReader& read);

}  // namespace argosy::data
