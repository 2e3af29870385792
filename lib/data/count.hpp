#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/log.hpp"
#include "data/shard_index.hpp"
#include "data/text_scan.hpp"

/// Counts and digests of text files, in one pass over all ranks, kept by content: a second call reads no text. Ranks
/// take ranges of 4 MiB blocks; a line belongs to the range that holds its first byte, so the record is the same for
/// any rank count.
namespace argosy::data {

inline constexpr std::uint64_t count_block_bytes = 4ULL << 20;

struct CountRecord {
  Digest digest;  // XXH3-128 over the XXH3-128 of each block: independent of the rank count
  std::uint64_t size_bytes = 0;
  TextFigures figures;
  std::optional<InvalidPlace> first_invalid;  // line from 0, byte offset in the file
  std::vector<std::uint32_t> block_newlines;  // LFs in each block: finds any line without reading the text before it
  bool operator==(const CountRecord&) const = default;
};

struct CountedFile {
  Path path;
  CountRecord record;
  bool from_cache = false;
};

struct CountSettings {
  Path cache;                 // folder of records; made when absent
  bool content_hash = false;  // read the text again even when path, size and times are as recorded
};

/// Counts every file. Errors: Error{data} for a missing file, a folder or a pipe; an empty file counts zeros.
/// A file whose size, mtime and ctime are as recorded is not opened. A touched one is hashed and found by its digest. A
/// record that cannot be kept costs the next call time: the log says so.
/// **Collective** over `world`; the result is the same on all ranks.
[[nodiscard]] std::vector<CountedFile> count_files(const comm::Communicator& world, const Files& files, const Log& log,
                                                   std::span<const Path> paths, const CountSettings& settings);

/// Throws Error{data}. now: "other lines".
[[noreturn]] void throw_changed_text(const Path& path, const std::string& now);

/// Byte offset of line `line` (from 0) of a counted file; the file's size when it has no more lines. Reads at most one
/// block.
[[nodiscard]] std::uint64_t offset_of_line(const Files& files, const Path& path, const CountRecord& record,
                                           std::uint64_t line);

/// One JSON object; record_of_text gives nothing for text that is no record of this version.
[[nodiscard]] std::string text_of(const CountRecord& record);
[[nodiscard]] std::optional<CountRecord> record_of_text(std::string_view text);

/// Count records on disk: `<digest>.json` by content, `at-<hash of path>.json` tells which content a path had at which
/// times. A record carries a digest of itself; damaged or foreign files are no records. One process writes; files are
/// replaced atomically.
class CountCache {
 public:
  CountCache(Files files, Path folder) : files_(files), folder_(std::move(folder)) {}

  /// The record of a path whose size, mtime and ctime are as they were when it was kept.
  [[nodiscard]] std::optional<CountRecord> find(const Path& path, const FileStat& stat) const;
  /// The record of a content, wherever it stood.
  [[nodiscard]] std::optional<CountRecord> find(const Digest& digest) const;
  /// Keeps a record and the place where it was found.
  void keep(const Path& path, const FileStat& stat, const CountRecord& record) const;

 private:
  [[nodiscard]] Path place_of(const Path& path) const;
  [[nodiscard]] Path record_path(const Digest& digest) const;
  Files files_;
  Path folder_;
};

/// A table with a line for each file, and a total below several: lines, empty ones, words, characters, bytes, columns
/// of the longest line, invalid bytes. Ends with a line feed.
[[nodiscard]] std::string count_table(std::span<const CountedFile> files);

/// The figures of the result line: `files`, one object each, and `lines`, `words`, `bytes` of all.
[[nodiscard]] boost::json::object count_figures(std::span<const CountedFile> files);

/// Tokens of the corpora, by name, as preprocess counted them; empty when the shards were made from other texts than
/// `files` (the corpora's sources and targets, in order).
[[nodiscard]] boost::json::object token_figures(const ShardIndex& index, std::span<const CountedFile> files);

}  // namespace argosy::data
