#pragma once

#include <cstdint>
#include <string>

#include "core/file.hpp"
#include "core/hash.hpp"
#include "data/count.hpp"
#include "data/data_config.hpp"
#include "data/pipeline.hpp"
#include "data/tokenizer.hpp"

/// Consecutive lines of a corpus to the bytes of one token shard. The bytes depend on text, tokenizer and task alone.
namespace argosy::data {

struct ShardTask {
  const CorpusConfig* corpus = nullptr;  // borrowed, as the pipeline and the texts
  const Pipeline* pipeline = nullptr;
  InvalidUtf8 policy = InvalidUtf8::reject;
  const CountedFile* source = nullptr;
  const CountedFile* target = nullptr;  // null: language model
  std::int64_t first_line = 0, lines = 0;
  Digest recipe;
};

/// What decides a shard's content.
[[nodiscard]] Digest digest_of_task(const ShardTask& task, const Digest& tokenizer, std::int64_t lines_per_shard);

/// The file's bytes, tokenized on `threads` threads. EOS ends every side. Lines without pieces and lines the transforms
/// refuse are left out and counted in the note. Throws Error{data} for invalid UTF-8 under `reject`.
[[nodiscard]] std::string tokenize_shard(const Files& files, const Tokenizer& tokenizer, const ShardTask& task,
                                         int threads);

}  // namespace argosy::data
