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

/// Reads a checkpoint's weights in small pieces and bounded memory: blocks are hashed while they are read and not kept.
/// Each byte is read once if pieces are read in ascending order; other orders are slower. A value is returned before
/// its block is verified: callers must not commit results before finish() has returned. One thread. Borrows the Reader.
class WeightStream {
 public:
  /// intervals: of all parameters, by (param, begin). datasets: for each parameter, the index of its dataset in a
  /// shard.
  WeightStream(ShardSet& shards, std::span<const partition::Interval> intervals, std::vector<std::size_t> datasets);

  /// Reads elements [begin, begin + to.size()) of parameter `param` (index in Reader::parameters()).
  /// Throws Error{corrupt} for a block that it completes.
  void read(std::size_t param, std::int64_t begin, std::span<float> to);
  /// Reads and verifies the rest of the block in progress. Throws Error{corrupt}.
  void finish();
  /// The number of bytes read from disk, in whole blocks.
  [[nodiscard]] std::uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  struct Block {
    int rank = -1;  // -1: none in progress
    std::size_t dataset = 0;
    std::uint64_t number = 0, offset = 0, size_bytes = 0, done = 0;  // offset: in the file
    Hasher hasher{};
  };
  void read_bytes(int rank, std::size_t dataset, std::uint64_t offset, MutableBytes to);
  void advance(MutableBytes to);       // reads at the position of the block in progress
  void skip_to(std::uint64_t target);  // in the block in progress

  ShardSet& shards_;
  std::span<const partition::Interval> intervals_;
  std::vector<std::size_t> datasets_;
  Block block_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace argosy::checkpoint
