#pragma once

#include <map>
#include <string>

#include "core/file.hpp"
#include "data/data_config.hpp"
#include "data/tokenizer.hpp"

/// The files of a configuration's tokenizers: data.tokenizer, or one for each language where its name has {language}.
namespace argosy::data {

[[nodiscard]] bool has_language_tokenizers(const DataConfig& config);
/// By language; of one for all texts, under "".
[[nodiscard]] std::map<std::string, Path> tokenizer_paths(const DataConfig& config);
/// Whether all of them exist.
[[nodiscard]] bool has_tokenizer(const Files& files, const DataConfig& config);
/// Throws as Tokenizer::read().
[[nodiscard]] Tokenizer read_tokenizer(const Files& files, const DataConfig& config, spec::VocabularyRule rule);

}  // namespace argosy::data
