#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "data/corpora.hpp"
#include "data/data_config.hpp"
#include "data/shard_index.hpp"
#include "data/tokenizer.hpp"

/// Text to token shards: counts, checks, trains the tokenizer when asked, tokenizes over ranks and threads, commits.
/// Shards are cut by lines, so the folder's bytes do not depend on the rank count; a folder that was left unfinished is
/// continued.
namespace argosy::data {

struct PreprocessSettings {
  DataConfig data;
  spec::VocabularyRule vocabulary{};
  Path cache;
  std::int64_t lines_per_shard = 65536;
  bool retrain_tokenizer = false;  // replace one that was trained on other text or with other settings
};

struct PreprocessReport {
  ShardIndex index;
  std::int64_t shards_written = 0, shards_kept = 0;  // over all ranks
  bool tokenizer_trained = false;
};

/// Leaves tokenizer and token shards as data.tokenizer and data.shards name them, and logs counts and the first three
/// examples of each corpus. One job at a time works in a folder of shards. **Collective** over `world`; the report is
/// the same on all ranks. Errors: Error{data} for missing and empty files, unequal line counts, invalid UTF-8 under
/// `reject`; Error{usage} when another job is at work in that folder; Error{config} for a vocabulary the text cannot
/// fill, for a tokenizer file of other origin in the way of training, and for one that was trained on other text or
/// with other settings unless it may be replaced; Error{io}.
PreprocessReport run_preprocess(const comm::Communicator& world, const Files& files, const Log& log,
                                const PreprocessSettings& settings);

/// Whether data.shards holds what run_preprocess would leave there, so that it need not be run. Reads no text whose
/// counts are kept. **Collective** over `world`.
[[nodiscard]] bool is_preprocessed(const comm::Communicator& world, const Files& files, const Log& log,
                                   const PreprocessSettings& settings);

/// The tokenizer of a configuration, or those of its languages, trained when asked and not there yet; a model file then
/// has a `.recipe` next to it that tells what it was made from. **Collective** over `world`.
struct PreparedTokenizer {
  Tokenizer tokenizer;
  bool trained = false;
};
[[nodiscard]] PreparedTokenizer prepare_tokenizer(const comm::Communicator& world, const Files& files, const Log& log,
                                                  const PreprocessSettings& settings,
                                                  std::span<const CountedCorpus> corpora);

}  // namespace argosy::data
