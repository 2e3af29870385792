#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/file.hpp"

/// Remembers which committed checkpoints of a run directory were found sound, so that a commit costs as many system
/// calls with 16,384 shards as with one. Nothing is written into a committed directory. A checkpoint that was sound
/// counts as sound while its directory and manifest are unchanged and a few of its shards, others at each call, have
/// their sizes. Not thread-safe.
namespace argosy::checkpoint {

[[nodiscard]] bool is_link(const Files& files, const Path& path);

class Inspected {
 public:
  struct Facts {
    bool finite = false;
    std::set<std::int64_t> best;  // the steps in its best.keep
  };
  /// The inodes, sizes and times of a checkpoint's directory and manifest.
  struct Identity {
    FileStat directory, manifest;
    bool operator==(const Identity&) const = default;
  };
  static constexpr std::size_t shards_looked_at = 8;  // per checkpoint and call

  explicit Inspected(const Files& files) : files_(files) {}

  /// nullopt: the checkpoint must be inspected. Throws Error{io}.
  [[nodiscard]] std::optional<Facts> find(const Path& directory);
  /// Call it before an inspection. nullopt: there is no manifest.
  [[nodiscard]] std::optional<Identity> identity_of(const Path& directory) const;
  /// Remembers a checkpoint that was found sound.
  void add(const Reader& reader, Facts facts, const Identity& identity);
  /// Call it before a checkpoint is removed or renamed.
  void forget(const Path& directory) { known_.erase(directory); }

 private:
  struct Known {
    Facts facts;
    Identity identity;
    std::vector<std::uint64_t> shard_bytes;
    std::size_t next = 0;  // the shard to look at next
  };
  [[nodiscard]] bool is_unchanged(const Path& directory, Known& known) const;

  Files files_;
  std::map<Path, Known> known_;
};

}  // namespace argosy::checkpoint
