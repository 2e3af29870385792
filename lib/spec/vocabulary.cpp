#include "spec/vocabulary.hpp"

namespace argosy::spec {

Vocabulary vocabulary_of(const VocabularyRule& rule, std::int64_t pieces) {
  const auto padded = [&](std::int64_t size) { return (size + rule.multiple - 1) / rule.multiple * rule.multiple; };
  Vocabulary vocabulary{.layout = rule.layout, .pieces = pieces, .rows = padded(pieces)};
  if (rule.ids) {
    vocabulary.eos = rule.ids->eos;
    vocabulary.unk = rule.ids->unk;
    vocabulary.bos = rule.ids->bos;
    vocabulary.pad = rule.ids->pad;
    vocabulary.start = rule.ids->start.value_or(rule.ids->bos.value_or(rule.ids->eos));
    vocabulary.has_own_ids = true;
    return vocabulary;
  }
  switch (rule.layout) {
    case TokenLayout::marian:
    case TokenLayout::pegasus:
      vocabulary.rows = padded(pieces + 1);  // pad is the last row, after the fillers
      vocabulary.eos = 0;
      vocabulary.unk = 1;
      vocabulary.pad = vocabulary.rows - 1;
      vocabulary.start = *vocabulary.pad;
      break;
    case TokenLayout::t5:
      vocabulary.pad = 0;
      vocabulary.eos = 1;
      vocabulary.unk = 2;
      vocabulary.start = 0;
      break;
    case TokenLayout::llama:
      vocabulary.unk = 0;
      vocabulary.bos = 1;
      vocabulary.eos = 2;
      vocabulary.start = 1;
      break;
  }
  return vocabulary;
}

}  // namespace argosy::spec
