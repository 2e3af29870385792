#pragma once

#include <boost/json/object.hpp>
#include <span>
#include <string>

#include "data/count.hpp"
#include "data/shard_index.hpp"

/// Counts for people and for programs.
namespace argosy::data {

/// A table with a line for each file, and a total below several: lines, empty ones, words, characters, bytes, columns
/// of the longest line, invalid bytes. Ends with a line feed.
[[nodiscard]] std::string count_table(std::span<const CountedFile> files);

/// The figures of the result line: `files`, one object each, and `lines`, `words`, `bytes` of all.
[[nodiscard]] boost::json::object count_figures(std::span<const CountedFile> files);

/// Tokens of the corpora, by name, as preprocess counted them; empty when the shards were made from other texts than
/// `files` (the corpora's sources and targets, in order).
[[nodiscard]] boost::json::object token_figures(const ShardIndex& index, std::span<const CountedFile> files);

}  // namespace argosy::data
