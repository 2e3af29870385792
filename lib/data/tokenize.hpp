#pragma once

#include <cstdint>
#include <string>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/data_config.hpp"
#include "data/pipeline.hpp"
#include "data/records.hpp"
#include "data/tokenizer.hpp"

/// Consecutive lines of a corpus to the bytes of one token shard. The bytes depend on text, tokenizer and task alone.
namespace argosy::data {

struct ShardTask {
  const CorpusConfig* corpus = nullptr;  // borrowed, as the pipeline and text.corpus
  const Pipeline* pipeline = nullptr;
  RecordTask text{};
  Digest recipe{};
};

/// What decides a shard's content.
[[nodiscard]] Digest digest_of_task(const ShardTask& task, const Digest& tokenizer, std::int64_t lines_per_shard);

/// The file's bytes, tokenized on `threads` threads. EOS ends every side of a pair and every document. Records without
/// pieces and those the transforms refuse are left out and counted in the note. Throws Error{data} for invalid UTF-8
/// under `reject`.
[[nodiscard]] std::string tokenize_shard(const Files& files, const ShardTask& task, int threads);

}  // namespace argosy::data
