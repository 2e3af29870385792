#pragma once

#include <map>
#include <string>
#include <string_view>

/// Several tokenizer files in one, as checkpoints store those of a model that has one for each language, or for each
/// side (FORMAT.md).
namespace argosy::data {

/// Bytes of tokenizer files by language, or by "source" and "target".
using TokenizerFiles = std::map<std::string, std::string>;

struct TokenizerPack {
  bool by_language = true;  // else by side
  TokenizerFiles files;
};

[[nodiscard]] bool is_several(std::string_view bytes);
[[nodiscard]] std::string pack_several(const TokenizerPack& several);
/// Throws Error{data} for bytes that are none; `name` stands in the message.
[[nodiscard]] TokenizerPack unpack_several(std::string_view bytes, std::string_view name);

}  // namespace argosy::data
