#pragma once

#include <memory>
#include <string>

#include "tokenizer/json_node.hpp"

/// "normalizer" of tokenizer.json: changes the text before it is cut. Immutable, for any number of threads.
namespace argosy::tokenizer {

/// A stretch of the input between added tokens.
struct Stretch {
  std::string text;
  bool first = false;  // its first character is the first of the input
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(Stretch& stretch) const = 0;
};

/// Throws Error{data} on what Argosy does not read.
[[nodiscard]] std::unique_ptr<Normalizer> normalizer_of(const JsonNode& node);

}  // namespace argosy::tokenizer
