#pragma once

#include <boost/json/object.hpp>

#include "data/tokenizer.hpp"

/// tokenizer.json of Hugging Face's `tokenizers`, from a SentencePiece model: the same ids for the same text.
/// FORMAT.md has the rules, and what remains different.
namespace argosy::interchange {

/// What surrounds the pieces of a text. bos_before: nothing if the vocabulary has no bos.
enum class Wrapping { bos_before, eos_after };

/// Throws Error{data} if the model is neither unigram nor BPE, or has a piece twice.
[[nodiscard]] boost::json::object tokenizer_json(const data::Tokenizer& tokenizer, Wrapping wrapping);

}  // namespace argosy::interchange
