#pragma once

#include "data/preprocess.hpp"
#include "support/shared_folder.hpp"
#include "support/small_text.hpp"

namespace argosy::test {

/// Settings that make a tokenizer and shards in `folder` out of so many verses, which this writes there.
/// **Collective.**
inline data::PreprocessSettings verses_to_preprocess(const SharedFolder& folder, std::size_t pairs,
                                                     std::int64_t vocab_size, std::int64_t lines_per_shard) {
  const Verses text = verses(pairs);
  data::CorpusConfig corpus{.name = "verses", .languages = {"en", "es"}};
  corpus.source = folder.write("verses.en", joined(text.english));
  corpus.target = folder.write("verses.es", joined(text.spanish));
  data::PreprocessSettings settings;
  settings.data.corpora.push_back(corpus);
  settings.data.tokenizer = folder / "model/spm.model";
  settings.data.shards = folder / "shards";
  settings.data.tokenizer_training = data::TokenizerTraining{.vocab_size = vocab_size};
  settings.cache = folder / "cache";
  settings.lines_per_shard = lines_per_shard;
  return settings;
}

}  // namespace argosy::test
