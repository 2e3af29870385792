#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interchange/piece_set.hpp"
#include "interchange/vocabulary.hpp"

/// What trim_vocabulary() and extend_vocabulary() share: a changed vocabulary as data, the model with it, and the
/// self-test.
namespace argosy::interchange {

struct VocabularyChange {
  std::string tokenizer;                     // the new file
  std::vector<std::int64_t> old_ids;         // the old id of each new one, ascending; -1: added, all next to each other
  std::vector<VocabularyFile::Added> added;  // made of old ids, whose rows' mean they get
};

/// The model with another vocabulary. Borrows `old`. Fillers have zero rows, and -1e4 in the bias of the output; a pad
/// that is dead keeps its row.
[[nodiscard]] model::StoredModel changed_model(const model::StoredModel& old, const VocabularyChange& change);

/// The self-test. Pieces and rows of both models are compared by their spelling, and `lines` are encoded with both
/// tokenizers, as each side does. Where a line has the same pieces, both models read it: what the head takes must have
/// the same bits, and as the rows of the output have the same bits too, so have the products for all old pieces. A line
/// must have the same pieces if the new vocabulary has all of them and the new encoding no piece that the old one
/// lacks. Rank 0. Throws Error{internal}.
[[nodiscard]] VocabularyFigures check_vocabulary(const model::StoredModel& old, const model::StoredModel& changed,
                                                 const std::vector<std::string>& lines, const model::Forward& forward);

/// The first non-empty lines of the files, `count` in all, as many from each. Throws Error{data} when there are none.
[[nodiscard]] std::vector<std::string> first_lines(const Files& files, const std::vector<Path>& texts,
                                                   std::size_t count);

/// Throws Error{data} for several tokenizers: the vocabulary of one is changed.
void require_one(const data::Tokenizer& tokenizer);
/// The sides whose encodings can differ: both of a piece table with two models, else one. Throws as require_one().
[[nodiscard]] std::vector<data::Side> sides_of(const data::Tokenizer& tokenizer);

/// The special ids of a model.
[[nodiscard]] std::vector<std::int64_t> special_ids(const spec::Vocabulary& vocabulary);

/// Appends the special ids that the tokenizer's file does not spell. All others that it does not spell can go.
void append_unspelled(std::vector<std::int64_t>& old_ids, const data::Tokenizer& tokenizer);

}  // namespace argosy::interchange
