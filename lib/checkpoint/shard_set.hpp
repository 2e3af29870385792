#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "core/clock.hpp"

/// The shards of one committed checkpoint, opened when first touched: HDF5 tells where the datasets lie and is closed
/// again, the digest tables must give the manifest's root digest, the index must be the arithmetic's; payload is then
/// read with pread. Every byte handed out comes from a 4 MiB block whose digest was right. Keeps at most a few files
/// open. One thread.
namespace argosy::checkpoint {

class ShardSet {
 public:
  /// Borrows `manifest` and `clock`, by which a file that is not there is waited for.
  ShardSet(const Files& files, Path directory, const Manifest& manifest, const Clock* clock = nullptr);

  struct Shard {
    ShardMap map;
    std::vector<std::vector<Digest>> tables;  // by dataset
  };
  /// Throws Error{corrupt} naming the file and what is wrong with it.
  const Shard& shard(int rank);
  /// An open file of the rank's shard; valid until the next call for another rank.
  const File& file(int rank);
  [[nodiscard]] Path path(int rank) const;

  /// Bytes [offset, offset + to.size()) of a dataset. Throws Error{corrupt} naming file, dataset and block.
  void read(int rank, std::size_t dataset, std::uint64_t offset, MutableBytes to);
  /// Elements [begin, begin + to.size()) of an f32 or bf16 dataset. Throws as read.
  void read_floats(int rank, std::size_t dataset, std::uint64_t begin, std::span<float> to);
  /// Whether payload is compared with its digests from here on.
  void hash_blocks(bool hash) noexcept { hashes_blocks_ = hash; }
  /// Blocks [begin, end) of a shard, numbered over its datasets; adds to `verified`.
  void verify(int rank, std::uint64_t begin, std::uint64_t end, Reader::Verified& verified);
  /// Error{corrupt} for a block with a wrong digest.
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
  std::deque<Open> open_;  // latest used in front
  struct Held {
    int rank = -1;
    std::size_t dataset = 0;
    std::uint64_t block = 0;
    std::vector<std::byte> bytes;
  };
  Held held_;  // the block read last when only a part was wanted
};

}  // namespace argosy::checkpoint
