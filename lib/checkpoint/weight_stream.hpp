#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/shard_set.hpp"
#include "core/hash.hpp"
#include "partition/flat_space.hpp"

/// Reads a checkpoint's weights in small pieces and bounded memory: blocks are hashed while they are read and not kept.
/// Each byte is read once if pieces are read in ascending order; other orders are slower. A value is returned before
/// its block is verified: callers must not commit results before finish() has returned. One thread. Borrows the Reader.
namespace argosy::checkpoint {

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
