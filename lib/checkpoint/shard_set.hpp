#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "core/clock.hpp"

/// Reads the shards of one committed checkpoint. The first access to a shard asks HDF5 where its datasets lie, and
/// checks the digest tables against the manifest's root digest and the index against the layout. pread reads the
/// payload; each 4 MiB block is verified before its bytes are returned. Keeps at most two files open. One thread.
namespace argosy::checkpoint {

class ShardSet {
 public:
  /// Borrows `manifest` and `clock`. clock: waits up to 60 s in all for files that this host does not see yet.
  ShardSet(const Files& files, Path directory, const Manifest& manifest, const Clock* clock = nullptr);

  struct Shard {
    ShardMap map;
    std::vector<std::vector<Digest>> tables;  // by dataset
  };
  /// Throws Error{corrupt}, which names the file and the flaw.
  const Shard& shard(int rank);
  /// The open file of a rank's shard. Valid until the next call for another rank.
  const File& file(int rank);
  [[nodiscard]] Path path(int rank) const;

  /// Reads bytes [offset, offset + to.size()) of a dataset. Throws Error{corrupt}, which names file, dataset and block.
  void read(int rank, std::size_t dataset, std::uint64_t offset, MutableBytes to);
  /// Reads elements [begin, begin + to.size()) of an f32 or bf16 dataset. Throws as read.
  void read_floats(int rank, std::size_t dataset, std::uint64_t begin, std::span<float> to);
  /// Sets whether reads compare payload with its digests.
  void hash_blocks(bool hash) noexcept { hashes_blocks_ = hash; }
  /// Verifies blocks [begin, end) of a shard, numbered over all its datasets, and adds to `verified`. Throws as read.
  void verify(int rank, std::uint64_t begin, std::uint64_t end, Reader::Verified& verified);
  /// Throws Error{corrupt} for a block that does not match its digest.
  [[noreturn]] void fail_block(int rank, std::size_t dataset, std::uint64_t block) const;

 private:
  void read_block(int rank, std::size_t dataset, std::uint64_t block, MutableBytes to);
  void await(const Path& path);
  void check_index(int rank, const Shard& shard);

  Files files_;
  Path directory_;
  const Manifest& manifest_;
  const Clock* clock_;
  double waited_s_ = 0;
  bool hashes_blocks_ = true;
  std::vector<std::unique_ptr<Shard>> shards_;
  struct Open {
    int rank;
    File file;
  };
  std::deque<Open> open_;  // the latest used first
  struct Held {
    int rank = -1;
    std::size_t dataset = 0;
    std::uint64_t block = 0;
    std::vector<std::byte> bytes;
  };
  Held held_;  // the last block of which only a part was wanted
};

}  // namespace argosy::checkpoint
