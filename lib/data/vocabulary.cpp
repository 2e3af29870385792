#include "data/vocabulary.hpp"

namespace argosy::data {

Vocabulary vocabulary_of(TokenShape shape, std::int64_t pieces) {
  const auto padded = [multiple = shape.vocab_multiple](std::int64_t size) {
    return (size + multiple - 1) / multiple * multiple;
  };
  Vocabulary vocabulary{.shape = shape.family, .live_size = pieces};
  switch (shape.family) {
    case ModelShape::marian:
    case ModelShape::pegasus:
      vocabulary.padded_size = padded(pieces + 1);  // pad stands behind the fillers
      vocabulary.eos = 0;
      vocabulary.unk = 1;
      vocabulary.pad = vocabulary.padded_size - 1;
      vocabulary.start = *vocabulary.pad;
      break;
    case ModelShape::t5:
      vocabulary.padded_size = padded(pieces);
      vocabulary.pad = 0;
      vocabulary.eos = 1;
      vocabulary.unk = 2;
      vocabulary.start = 0;
      break;
    case ModelShape::llama:
      vocabulary.padded_size = padded(pieces);
      vocabulary.unk = 0;
      vocabulary.bos = 1;
      vocabulary.eos = 2;
      vocabulary.start = 1;
      break;
  }
  return vocabulary;
}

}  // namespace argosy::data
