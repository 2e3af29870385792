#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "data/count.hpp"
#include "data/data_config.hpp"
#include "data/shard_index.hpp"

/// The corpora of a configuration, from file names to counted files.
namespace argosy::data {

/// The files of a corpus, counted. target: one for each source, or none. A corpus's lines are those of its files laid
/// end to end.
struct CountedCorpus {
  TextRules rules{};
  std::vector<CountedFile> source{}, target{};
  std::vector<std::string> languages{};  // as configured

  [[nodiscard]] std::int64_t lines() const {
    std::int64_t sum = 0;
    for (const CountedFile& file : source) sum += file.record.figures.lines;
    return sum;
  }
  [[nodiscard]] std::uint64_t size_bytes() const {  // of both sides
    std::uint64_t sum = 0;
    for (const std::vector<CountedFile>* side : {&source, &target})
      for (const CountedFile& file : *side) sum += file.record.size_bytes;
    return sum;
  }
};

/// Finds and counts the files of all corpora. **Collective** over `world`; the result is the same on all ranks.
/// Throws Error{data} as find_text_files and count_files.
[[nodiscard]] std::vector<CountedCorpus> count_corpora(const comm::Communicator& world, const Files& files,
                                                       const Log& log, const DataConfig& data,
                                                       const CountSettings& settings);

/// The same where token shards hold places in them: in data.mode online, of a run in `run_dir`. Else none.
/// **Collective.**
[[nodiscard]] std::vector<CountedCorpus> online_corpora(const comm::Communicator& world, const Files& files,
                                                        const Log& log, const DataConfig& data, const Path& run_dir);

/// Throws Error{data} for what preprocess cannot read: a corpus without words, a binary file, invalid UTF-8 under
/// `reject`, files of a pair with different line counts.
void require_readable(std::span<const CountedCorpus> corpora);

/// Digest of the files of one side: of a single file its own.
[[nodiscard]] Digest digest_of_texts(std::span<const CountedFile> texts);
/// All counted files, each once: of each corpus its sources, then its targets.
[[nodiscard]] std::vector<CountedFile> files_of(std::span<const CountedCorpus> corpora);

/// Tokens of the corpora, by name, as preprocess counted them; empty when the shards were made from other texts.
[[nodiscard]] boost::json::object token_figures(const ShardIndex& index, std::span<const CountedCorpus> corpora);

}  // namespace argosy::data
