#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/file.hpp"
#include "core/hash.hpp"

/// `index.json` of a folder of token shards (FORMAT.md): what was made from what. Its existence means the folder is
/// complete.
namespace argosy::data {

struct ShardIndex {
  struct Text {
    Digest digest;
    std::int64_t lines = 0;
    bool operator==(const Text&) const = default;
  };
  struct Shard {
    std::string file;
    std::uint64_t examples = 0, size_bytes = 0;
    Digest digest;
    bool operator==(const Shard&) const = default;
  };
  struct Corpus {
    std::string name;
    std::vector<std::string> languages;
    std::vector<Text> texts;  // source, and target for pairs
    std::string transforms;   // Pipeline::recipe(): what training must go on with
    /// Of the best segmentation, EOS included; ids that are the unknown piece.
    std::int64_t src_tokens = 0, tgt_tokens = 0, unknown = 0;
    std::map<std::string, std::int64_t> dropped;  // by reason
    std::vector<Shard> shards;
    [[nodiscard]] std::uint64_t examples() const;
    bool operator==(const Corpus&) const = default;
  };
  Digest tokenizer;
  std::int64_t pieces = 0;
  Digest recipe;
  std::vector<Corpus> corpora;
  bool operator==(const ShardIndex&) const = default;
};

/// Throws Error{data} when the folder has none or one of an older version, Error{corrupt} when it is damaged.
[[nodiscard]] ShardIndex read_shard_index(const Files& files, const Path& folder);
[[nodiscard]] std::string text_of(const ShardIndex& index);
[[nodiscard]] Path shard_index_path(const Path& folder);
/// Refuses token shards or an index of an older version with Error{data}.
[[noreturn]] void throw_old_shards(const Path& path, std::int64_t version);

}  // namespace argosy::data
