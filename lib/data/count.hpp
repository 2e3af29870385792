#pragma once

#include <boost/json/array.hpp>
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
#include "data/compressed.hpp"
#include "data/text_scan.hpp"

/// Counts and digests of text files, in one pass over all ranks, kept by content: a second call reads no text. Ranks
/// take ranges of 4 MiB blocks of a large file, and whole files that are small or compressed. A line belongs to the
/// range that holds its first byte, so the record is the same for any rank count. The record of a compressed file is
/// that of its text.
namespace argosy::data {

inline constexpr std::uint64_t count_block_bytes = 4ULL << 20;

struct CountRecord {
  Digest digest;  // XXH3-128 over the XXH3-128 of each block: independent of the rank count
  std::uint64_t size_bytes = 0;
  TextFigures figures;
  std::optional<BytePlace> first_invalid, first_zero;  // line from 0, byte offset in the text
  bool has_byte_order_mark = false;
  std::vector<std::uint32_t> block_newlines;  // LFs in each block: finds any line without reading the text before it
  bool operator==(const CountRecord&) const = default;
};

struct CountedFile {
  Path path;
  CountRecord record;
  bool from_cache = false;
  /// Where the text can be read: the file, or its unpacked text; empty for a compressed file that was not unpacked.
  Path text{};
};

struct CountSettings {
  Path cache;                 // folder of records; made when absent
  bool content_hash = false;  // read the text again even when path, size and times are as recorded
  UnpackSettings unpack{};
};

/// Counts every file. Errors: Error{data} for a missing file, a folder or a pipe, and for a text above the limit;
/// Error{corrupt} for a damaged compressed file. An empty file counts zeros.
/// A file whose size, mtime and ctime are as recorded is not opened. A touched one is hashed and found by its digest. A
/// record that cannot be kept costs the next call time: the log says so.
/// **Collective** over `world`; the result is the same on all ranks.
[[nodiscard]] std::vector<CountedFile> count_files(const comm::Communicator& world, const Files& files, const Log& log,
                                                   std::span<const Path> paths, const CountSettings& settings);

/// Counts what standard input of rank 0 holds, up to its end. Nothing is kept. **Collective** over `world`.
[[nodiscard]] CountedFile count_standard_input(const comm::Communicator& world, const Files& files);

/// One JSON object; record_of_text gives nothing for text that is no record of this version.
[[nodiscard]] std::string text_of(const CountRecord& record);
[[nodiscard]] std::optional<CountRecord> record_of_text(std::string_view text);

/// What is known of a file without reading it.
struct KnownFile {
  CountRecord record;
  std::optional<Digest> packed;  // of a compressed file
};

/// Count records on disk. Of a few files: `<digest>.json` by content, and `at-<hash of path>.json`, which tells which
/// content a path had at which times. Of many files: `list-<hash of the paths>.json` has all, since writing two small
/// files for each would take longer than counting. A record carries a digest of itself; damaged or foreign files are no
/// records. One process writes; files are replaced atomically.
class CountCache {
 public:
  static constexpr std::size_t most_single_files = 64;

  CountCache(Files files, Path folder, std::span<const Path> paths);

  /// Of many files: reads what is known. Call it before find().
  void load();
  /// The record of paths[i] if its size, mtime and ctime are as they were when it was kept.
  [[nodiscard]] std::optional<KnownFile> find(std::size_t i, const FileStat& stat) const;
  /// Keeps a record of paths[i]; of many files after the call of flush().
  void keep(std::size_t i, const FileStat& stat, const KnownFile& known);
  void flush();

 private:
  [[nodiscard]] Path place_of(const Path& path) const;
  [[nodiscard]] Path record_path(const Digest& digest) const;
  [[nodiscard]] Path list_path() const;
  [[nodiscard]] bool is_list() const { return paths_.size() > most_single_files; }
  Files files_;
  Path folder_;
  std::vector<Path> paths_;
  boost::json::array list_;  // of many files: [place, record] of each, or null
};

/// A table with a line for each file, and a total below several: lines, empty ones, words, characters, bytes, columns
/// of the longest line, invalid bytes. Ends with a line feed.
[[nodiscard]] std::string count_table(std::span<const CountedFile> files);

/// Warns of files that are no valid text, each with the first place.
void log_warnings(const Log& log, std::span<const CountedFile> files);

/// The figures of the result line: `files`, one object each, and `lines`, `words`, `bytes` of all.
[[nodiscard]] boost::json::object count_figures(std::span<const CountedFile> files);

}  // namespace argosy::data
