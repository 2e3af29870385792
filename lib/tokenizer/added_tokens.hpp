#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokenizer/model.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/parts.hpp"
#include "tokenizer/trie.hpp"

/// "added_tokens" of tokenizer.json: pieces that are found in the text before the model sees it. Immutable, for any
/// number of threads.
namespace argosy::tokenizer {

class AddedTokens {
 public:
  struct Token {
    std::string content;
    bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
  };

  /// node: the array, if there is one. Throws Error{data} if an id is not the one of the piece in the model, or the
  /// next free one.
  AddedTokens(const std::optional<JsonNode>& node, const Model& model, const Normalizer* normalizer);

  /// The text, normalized, in parts: added tokens, and the stretches between them.
  [[nodiscard]] Parts split(std::string_view text, const Normalizer* normalizer) const;

  /// The token of an id; nullptr: not added.
  [[nodiscard]] const Token* find(std::int32_t id) const;
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view content) const;
  /// What the decoder sees of an added token: its normalized text.
  [[nodiscard]] const std::string& decoded(std::int32_t id) const { return decoded_.at(id); }
  /// Whether a piece, as the decoder sees it, is to be left out of text.
  [[nodiscard]] bool is_left_out(const std::string& piece) const { return special_.contains(piece); }
  /// One more than the greatest id.
  [[nodiscard]] std::int32_t size() const { return size_; }

 private:
  struct Found {
    Span span;
    std::int32_t id;  // -1: text between tokens
  };
  [[nodiscard]] std::vector<Found> found(std::string_view text, const Trie& trie) const;

  std::unordered_map<std::int32_t, Token> tokens_;
  std::unordered_map<std::int32_t, std::string> decoded_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> special_;
  Trie as_written_{{}}, normalized_{{}};
  std::int32_t size_ = 0;
};

}  // namespace argosy::tokenizer
