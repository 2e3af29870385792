#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/json_node.hpp"

/// "decoder" of tokenizer.json: from pieces back to text. Immutable, for any number of threads.
namespace argosy::tokenizer {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes pieces to stretches of text, which are read one after the other.
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

/// Throws Error{data} on what Argosy does not read.
[[nodiscard]] std::unique_ptr<Decoder> decoder_of(const JsonNode& node);

}  // namespace argosy::tokenizer
