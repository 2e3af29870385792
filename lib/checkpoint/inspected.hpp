#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/file.hpp"

/// What a run directory's owner remembers of the committed checkpoints in it, so that a commit costs as many calls with
/// 16,384 shards as with one. Committed directories are never written again: one that was sound once is taken for sound
/// while it and its manifest are the same files, unchanged, and a few of its shards, others each time, have their
/// sizes. Not thread-safe.
namespace argosy::checkpoint {

[[nodiscard]] bool is_link(const Files& files, const Path& path);

class Inspected {
 public:
  struct Facts {
    bool finite = false;
    std::set<std::int64_t> best;  // steps that its best.keep lists
  };
  /// Which file a name stands for, and in which state.
  struct Identity {
    FileStat directory, manifest;
  };
  static constexpr std::size_t shards_looked_at = 8;  // of each checkpoint at each call

  explicit Inspected(const Files& files) : files_(files) {}

  /// nullopt: it has to be inspected. Throws Error{io}.
  [[nodiscard]] std::optional<Facts> find(const Path& directory);
  /// To be asked for before an inspection. nullopt: there is no manifest.
  [[nodiscard]] std::optional<Identity> identity_of(const Path& directory) const;
  /// `reader` is of a checkpoint that was found sound.
  void add(const Reader& reader, Facts facts, const Identity& identity);
  /// It is to be removed or has got another name.
  void forget(const Path& directory) { known_.erase(directory); }

 private:
  struct Known {
    Facts facts;
    Identity identity;
    std::vector<std::uint64_t> shard_bytes;
    std::size_t next = 0;  // to look at
  };
  [[nodiscard]] bool is_unchanged(const Path& directory, Known& known) const;

  Files files_;
  std::map<Path, Known> known_;
};

}  // namespace argosy::checkpoint
