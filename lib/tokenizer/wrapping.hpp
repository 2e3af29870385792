#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/json_node.hpp"

/// "post_processor" of tokenizer.json: ids around a text.
namespace argosy::tokenizer {

struct Wrapping {
  std::vector<std::int32_t> before, after;
};

/// size: ids are less. Throws Error{data} on what Argosy does not read.
[[nodiscard]] Wrapping wrapping_of(const JsonNode& node, std::int32_t size);

}  // namespace argosy::tokenizer
