#pragma once

#include <cstdint>
#include <vector>

#include "comm/run_main.hpp"
#include "model/forward.hpp"

/// Takes pieces out of a model's vocabulary, or adds some (FORMAT.md). The changed model reads the weights of the old
/// one, borrows it, and can be written in every format, with vocab_map.json. Before that a self-test compares both
/// models on lines of text.
namespace argosy::interchange {

/// Of the lines of the self-test.
struct VocabularyFigures {
  std::int64_t pieces_before = 0, pieces_after = 0;
  std::int64_t parts = 0;                        // of pieces that were added: pieces that BPE needs to build them
  std::int64_t skipped = 0;                      // pieces that were to be added and exist
  std::int64_t lines = 0;                        // that were compared
  std::int64_t same_lines = 0;                   // whose pieces stay; the models agree on them bit for bit
  double unknown_before = 0, unknown_after = 0;  // share of the pieces
  double length_before = 0, length_after = 0;    // mean number of pieces
};

struct ChangedVocabulary {
  model::StoredModel model;
  VocabularyFigures figures;
};

/// Keeps the pieces that the tokenizer makes of the text `files` at least `min_count` times, by the model of either
/// side, those that are not ordinary (special, user-defined, added, byte), the parts that BPE builds kept pieces from,
/// and of unigram models the highest and the lowest score, which decide those of user-defined and unknown pieces. So
/// text whose pieces are kept is encoded as before. The ranks share out the lines. **Collective.** Throws Error{data}
/// for text that cannot be read, for files without text and for a tokenizer that is neither unigram nor BPE,
/// Error{internal} when the self-test on the first 100 lines fails.
[[nodiscard]] ChangedVocabulary trim_vocabulary(comm::Context& context, const model::StoredModel& model,
                                                const std::vector<Path>& files, std::int64_t min_count,
                                                const model::Forward& forward);

/// Adds the pieces of a file, one in a line; blanks begin words. The rows of a piece are the means, in fp32, of the
/// rows of the pieces that the old tokenizer makes of it. In text it takes their place: unigram models prefer it to
/// them by its score, BPE models build it after all old pieces. `texts`: for the self-test and the figures.
/// **Collective.** Throws as trim_vocabulary(), and Error{data} where no piece is new, for one that begins a word and
/// is never made of text, because the tokenizer normalizes it, and for one that merges cannot lead to.
[[nodiscard]] ChangedVocabulary extend_vocabulary(comm::Context& context, const model::StoredModel& model,
                                                  const Path& pieces, const std::vector<Path>& texts,
                                                  const model::Forward& forward);

}  // namespace argosy::interchange
