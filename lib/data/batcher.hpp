#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.hpp"
#include "data/tokenizer.hpp"

/// Lays ids out as batches. Pure; shapes and masks are defined in batch.hpp.
namespace argosy::data {

/// One translation example: ids with EOS at the end on both sides; an empty target leaves the target side out.
struct Example {
  std::span<const std::int32_t> source, target;
  std::uint64_t id = 0;
};

/// Rows of pairs, at least `source_width` and `target_width` wide. Throws Error{corrupt} for an id outside the live
/// ones.
[[nodiscard]] Batch batch_of_pairs(std::span<const Example> examples, const spec::Vocabulary& vocabulary,
                                   std::int64_t source_width = 0, std::int64_t target_width = 0);

/// Builds rows of language-model text. A document is its beginning (Vocabulary::start) and its ids; input position i
/// has the following id as label, except where that id begins a document.
class LmBatcher {
 public:
  LmBatcher(const spec::Vocabulary& vocabulary, std::int64_t rows, std::int64_t width);

  void begin_row();
  /// Positions [from, from + count) of a document of `ids.size() + 1` positions: 0 is the start token, i is ids[i - 1].
  void add(std::span<const std::int32_t> ids, std::int64_t from, std::int64_t count);
  /// The batch, cut to its widest row.
  [[nodiscard]] Batch take();

 private:
  const spec::Vocabulary& vocabulary_;
  Batch batch_;
  std::int64_t row_ = -1, at_ = 0, segment_ = 0;
};

}  // namespace argosy::data
