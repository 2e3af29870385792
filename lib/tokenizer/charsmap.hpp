#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_node.hpp"

/// The map of characters that SentencePiece compiles its normalization rules to: a Darts double array
/// (Yata et al., 2007; units of 32 bits) from byte strings to offsets in a list of replacements, each of which ends
/// with a zero byte.
namespace argosy::tokenizer {

class Charsmap {
 public:
  /// node: the map in base64. Throws Error{data} if it is none: its sizes and its text are checked here, and each step
  /// is checked when it is looked up.
  explicit Charsmap(const JsonNode& node);

  /// As the tokenizers library does: a grapheme cluster of less than 6 bytes gives way to what its shortest known
  /// prefix stands for; where there is none, each of its characters does by itself.
  [[nodiscard]] std::string applied(std::string_view text) const;

 private:
  [[nodiscard]] std::optional<std::string_view> replacement(std::string_view part) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace argosy::tokenizer
