#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/file.hpp"
#include "data/count.hpp"

/// Count records on disk: `<digest>.json` by content, `at-<hash of path>.json` tells which content a path had at which
/// times. A record carries a digest of itself; damaged or foreign files are no records. One process writes; files are
/// replaced atomically.
namespace argosy::data {

/// One JSON object; record_of_text gives nothing for text that is no record of this version.
[[nodiscard]] std::string text_of(const CountRecord& record);
[[nodiscard]] std::optional<CountRecord> record_of_text(std::string_view text);

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

}  // namespace argosy::data
