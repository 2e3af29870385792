#include "data/tokenizer_files.hpp"

#include <algorithm>
#include <string_view>

namespace argosy::data {
namespace {

constexpr std::string_view language_mark = "{language}";

}  // namespace

bool has_language_tokenizers(const DataConfig& config) {
  return config.tokenizer.find(language_mark) != std::string::npos;
}

std::map<std::string, Path> tokenizer_paths(const DataConfig& config) {
  if (!has_language_tokenizers(config)) return {{"", config.tokenizer}};
  std::map<std::string, Path> paths;
  for (const CorpusConfig& corpus : config.corpora) {
    for (const std::string& language : corpus.languages) {
      std::string path = config.tokenizer;
      for (std::size_t at = 0; (at = path.find(language_mark, at)) != std::string::npos; at += language.size())
        path.replace(at, language_mark.size(), language);
      paths.emplace(language, std::move(path));
    }
  }
  return paths;
}

bool has_tokenizer(const Files& files, const DataConfig& config) {
  return std::ranges::all_of(tokenizer_paths(config), [&](const auto& each) { return files.exists(each.second); });
}

Tokenizer read_tokenizer(const Files& files, const DataConfig& config, spec::VocabularyRule rule) {
  if (!has_language_tokenizers(config)) return Tokenizer::read(files, config.tokenizer, rule);
  TokenizerFiles read;
  for (const auto& [language, path] : tokenizer_paths(config)) read.emplace(language, tokenizer_bytes(files, path));
  return Tokenizer::by_language(read, rule, config.tokenizer);
}

}  // namespace argosy::data
