#pragma once

#include <cstdint>
#include <vector>

/// One micro-batch in host memory: plain row-major arrays that the model wraps or copies. Ids are rows of the model's
/// vocabulary. Translation fills source and target; a language model fills the target side alone (source_width 0) and,
/// where rows hold several documents, tells them apart by `segments`.
namespace argosy::data {

/// Label of a position that bears no loss.
inline constexpr std::int64_t no_label = -1;

struct Batch {
  std::int64_t rows = 0, source_width = 0, target_width = 0;  // R, S, T
  std::uint32_t route = 0;                                    // through the model, of all rows

  std::vector<std::int64_t> source;          // [R, S] EOS at the end of each row, Vocabulary::filler() behind it
  std::vector<std::int64_t> source_lengths;  // [R] EOS included
  std::vector<std::int64_t> target_input;    // [R, T] translation: start token first; filler() behind the end
  std::vector<std::int64_t> target_labels;   // [R, T] next id; no_label behind the end and where a document begins
  std::vector<std::int64_t> target_lengths;  // [R] filled positions of target_input
  std::vector<std::int64_t> segments;  // [R, T] language model: document within the row, from 0; -1 behind the end
  std::vector<std::int64_t> source_positions;  // [R, S] translation: position in the source; empty: 0, 1, 2, …
  std::vector<std::int64_t> positions;  // [R, T] position in the target or document; translation: may be empty, too
  std::vector<std::int64_t> prompts;    // [R, T] language model: where the prompt around a position ends; outside one 0
  std::vector<std::int64_t> corpora;    // [R, T] where there are several: that of each position; 0 behind the end
  std::vector<std::uint64_t> examples;  // [R] translation: example ids (line numbers of a validation set); else empty

  std::int64_t src_tokens = 0;     // real source ids, EOS included
  std::int64_t tgt_tokens = 0;     // loss-bearing labels
  std::int64_t padded_tokens = 0;  // R · (S + T)
  std::int64_t without_noise = 0;  // examples made without it, because with it they were longer than planned

  [[nodiscard]] bool empty() const noexcept { return rows == 0; }
};

}  // namespace argosy::data
