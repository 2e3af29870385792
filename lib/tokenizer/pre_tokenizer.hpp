#pragma once

#include <memory>

#include "tokenizer/json_node.hpp"
#include "tokenizer/parts.hpp"

/// "pre_tokenizer" of tokenizer.json: cuts the normalized text into words. Immutable, for any number of threads.
namespace argosy::tokenizer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Parts& parts) const = 0;
};

/// Throws Error{data} on what Argosy does not read.
[[nodiscard]] std::unique_ptr<PreTokenizer> pre_tokenizer_of(const JsonNode& node);

}  // namespace argosy::tokenizer
