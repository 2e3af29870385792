#include "checkpoint/shard_set.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/owner.hpp"

namespace argosy::checkpoint {
namespace {

constexpr std::size_t most_open_files = 2;  // of each checkpoint; a soup reads many
constexpr const char* damaged = "the data on disk is damaged: move this checkpoint away and resume from an older one";

}  // namespace

ShardSet::ShardSet(const Files& files, Path directory, const Manifest& manifest, const Clock* clock)
    : files_(files),
      directory_(std::move(directory)),
      manifest_(manifest),
      clock_(clock),
      shards_(static_cast<std::size_t>(manifest.world())) {}

Path ShardSet::path(int rank) const { return directory_ / shard_name(rank, manifest_.world()); }

/// Network file systems may show a file that another client has just created some time later; 60 s in all suffice.
void ShardSet::await(const Path& path) {
  constexpr double patience_s = 60, longest_pause_s = 5;
  for (double pause_s = 0.01; clock_ != nullptr; pause_s = std::min(2 * pause_s, longest_pause_s)) {
    const int fd = files_.os().open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    const int error = fd < 0 ? errno : 0;
    if (fd >= 0) files_.os().close(fd);
    if (error != ENOENT && error != ESTALE) return;  // the reader reports any other error
    if (waited_s_ >= patience_s) {
      const std::string host = host_name();
      throw_claim(Fault::io,
                  fmt::format("{} is visible to rank 0, but not to the host {} after {:.0f} s ({})", path.string(),
                              host, waited_s_, strerrorname_np(error)),
                  path.string(), "a file that rank 0 sees",
                  fmt::format("{} after {:.0f} s", strerrorname_np(error), waited_s_),
                  fmt::format("check that {} mounts the run directory like the others", host));
    }
    clock_->sleep_s(pause_s);
    waited_s_ += pause_s;
  }
}

const File& ShardSet::file(int rank) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.rank == rank; });
  if (found != open_.end()) {
    std::rotate(open_.begin(), found, found + 1);
  } else {
    if (open_.size() == most_open_files) open_.pop_back();
    await(path(rank));
    try {
      open_.push_front({rank, files_.open(path(rank))});
    } catch (const Error& error) {  // a missing file of a checkpoint is damage
      if (error.fault() != Fault::data) throw;
      throw Error{Fault::corrupt, error.facts()};
    }
  }
  return open_.front().file;
}

const ShardSet::Shard& ShardSet::shard(int rank) {
  std::unique_ptr<Shard>& place = shards_[static_cast<std::size_t>(rank)];
  if (place != nullptr) return *place;
  await(path(rank));
  auto shard = std::make_unique<Shard>();
  shard->map = open_shard(files_, path(rank), manifest_.identity(rank), manifest_.specs(rank));
  for (const ShardMap::Dataset& dataset : shard->map.datasets) {
    std::vector<Digest>& table = shard->tables.emplace_back(dataset.spec.blocks());
    if (!table.empty()) file(rank).read_at(std::as_writable_bytes(std::span{table}), dataset.digest_offset);
  }
  const Digest root = root_digest(shard->map, shard->tables),
               wanted = manifest_.shards[static_cast<std::size_t>(rank)].root;
  if (root != wanted)
    throw_claim(Fault::corrupt,
                fmt::format("{}: the digest tables do not match the root digest in MANIFEST.json", path(rank).string()),
                path(rank).string(), "digest tables with the root digest " + wanted.hex(), root.hex(), damaged);
  place = std::move(shard);
  try {
    check_index(rank, *place);
  } catch (const Error&) {
    place.reset();
    throw;
  }
  return *place;
}

void ShardSet::check_index(int rank, const Shard& shard) {
  const std::vector<std::vector<std::byte>> wanted = manifest_.index(rank);
  std::size_t dataset = shard.map.datasets.size() - wanted.size();
  const bool same = std::ranges::all_of(wanted, [&](const std::vector<std::byte>& column) {
    std::vector<std::byte> got(column.size());
    read(rank, dataset++, 0, got);
    return got == column;
  });
  if (same) return;
  throw_error(Fault::corrupt, path(rank).string(), "the index that follows from the manifest's layout", "another index",
              damaged);
}

void ShardSet::fail_block(int rank, std::size_t dataset, std::uint64_t block) const {
  const DatasetSpec& spec = shards_[static_cast<std::size_t>(rank)]->map.datasets[dataset].spec;
  throw_claim(Fault::corrupt,
              fmt::format("{}: block {} of {} does not match its stored digest", path(rank).string(), block, spec.name),
              path(rank).string(), fmt::format("the stored digest of block {} of {}", block, spec.name),
              "another digest", damaged);
}

void ShardSet::read_block(int rank, std::size_t dataset, std::uint64_t block, MutableBytes to) {
  const Shard& from = shard(rank);
  const File& source = file(rank);
  const std::uint64_t begin = from.map.datasets[dataset].offset + block * block_bytes;
  Hasher hasher;
  for (std::size_t at = 0; at < to.size(); at += piece_bytes) {
    const MutableBytes piece = to.subspan(at, std::min<std::size_t>(piece_bytes, to.size() - at));
    source.read_at(piece, begin + at);
    if (hashes_blocks_) hasher.update(piece);
  }
  if (hashes_blocks_ && hasher.digest() != from.tables[dataset][block]) fail_block(rank, dataset, block);
}

void ShardSet::read(int rank, std::size_t dataset, std::uint64_t offset, MutableBytes to) {
  const std::uint64_t size_bytes = shard(rank).map.datasets[dataset].spec.size_bytes();
  ARGOSY_CHECK(offset <= size_bytes && to.size() <= size_bytes - offset, "read past dataset {}", dataset);
  while (!to.empty()) {
    const std::uint64_t block = offset / block_bytes, begin = block * block_bytes;
    const std::uint64_t length = std::min(block_bytes, size_bytes - begin);
    const std::uint64_t skip = offset - begin, take = std::min<std::uint64_t>(length - skip, to.size());
    if (take == length) {
      read_block(rank, dataset, block, to.first(take));
    } else {
      if (held_.rank != rank || held_.dataset != dataset || held_.block != block) {
        held_.rank = -1;  // until the block is verified
        held_.bytes.resize(length);
        read_block(rank, dataset, block, held_.bytes);
        held_ = {rank, dataset, block, std::move(held_.bytes)};
      }
      std::memcpy(to.data(), held_.bytes.data() + skip, take);
    }
    to = to.subspan(take);
    offset += take;
  }
}

void ShardSet::read_floats(int rank, std::size_t dataset, std::uint64_t begin, std::span<float> to) {
  const DType dtype = shard(rank).map.datasets[dataset].spec.dtype;
  const MutableBytes bytes = std::as_writable_bytes(to);
  read(rank, dataset, begin * size_of(dtype), bytes.last(to.size() * size_of(dtype)));
  if (dtype == DType::bf16) widen_bf16(to);
}

void ShardSet::verify(int rank, std::uint64_t begin, std::uint64_t end, Reader::Verified& verified) {
  const ShardMap& map = shard(rank).map;
  std::vector<std::byte> buffer(block_bytes);
  std::uint64_t first = 0;  // number of the dataset's first block
  for (std::size_t dataset = 0; dataset < map.datasets.size(); ++dataset) {
    const DatasetSpec& spec = map.datasets[dataset].spec;
    const std::uint64_t from = std::max(begin, first), to = std::min(end, first + spec.blocks());
    for (std::uint64_t number = from; number < to; ++number) {
      const std::uint64_t block = number - first;
      const MutableBytes bytes =
          MutableBytes{buffer}.first(std::min(block_bytes, spec.size_bytes() - block * block_bytes));
      read_block(rank, dataset, block, bytes);
      verified.bytes += bytes.size();
      verified.finite = all_finite(bytes, spec.dtype) && verified.finite;
    }
    first += spec.blocks();
  }
}

WeightStream::WeightStream(ShardSet& shards, std::span<const partition::Interval> intervals,
                           std::vector<std::size_t> datasets)
    : shards_(shards), intervals_(intervals), datasets_(std::move(datasets)) {}

void WeightStream::read(std::size_t param, std::int64_t begin, std::span<float> to) {
  const auto end = begin + static_cast<std::int64_t>(to.size());
  auto at = std::partition_point(intervals_.begin(), intervals_.end(), [&](const partition::Interval& interval) {
    return std::pair(interval.param, interval.end) <= std::pair(param, begin);
  });
  for (std::int64_t next = begin; next < end; ++at) {
    ARGOSY_CHECK(at != intervals_.end() && at->param == param && at->begin <= next, "parameter {} has a gap at {}",
                 param, next);
    const std::int64_t stop = std::min(end, at->end);
    const std::span piece = to.subspan(static_cast<std::size_t>(next - begin), static_cast<std::size_t>(stop - next));
    const DType dtype = shards_.shard(at->rank).map.datasets[datasets_[param]].spec.dtype;
    read_bytes(at->rank, datasets_[param],
               static_cast<std::uint64_t>(at->local_offset + next - at->begin) * size_of(dtype),
               std::as_writable_bytes(piece).last(piece.size() * size_of(dtype)));
    if (dtype == DType::bf16) widen_bf16(piece);
    next = stop;
  }
}

void WeightStream::read_bytes(int rank, std::size_t dataset, std::uint64_t offset, MutableBytes to) {
  while (!to.empty()) {
    const std::uint64_t number = offset / block_bytes, within = offset % block_bytes;
    const bool same = block_.rank == rank && block_.dataset == dataset && block_.number == number;
    if (!same || block_.done > within) {
      finish();
      const ShardMap::Dataset& place = shards_.shard(rank).map.datasets[dataset];
      const std::uint64_t begin = number * block_bytes;
      block_ =
          Block{rank, dataset, number, place.offset + begin, std::min(block_bytes, place.spec.size_bytes() - begin),
                0,    Hasher{}};
    }
    skip_to(within);
    const std::uint64_t take = std::min<std::uint64_t>(block_.size_bytes - within, to.size());
    advance(to.first(take));
    if (block_.done == block_.size_bytes) finish();
    to = to.subspan(take);
    offset += take;
  }
}

void WeightStream::advance(MutableBytes to) {
  shards_.file(block_.rank).read_at(to, block_.offset + block_.done);
  block_.hasher.update(to);
  block_.done += to.size();
  bytes_read_ += to.size();
}

void WeightStream::skip_to(std::uint64_t target) {
  if (block_.done >= target) return;
  // Held no longer than this takes: a soup has a stream for each of many checkpoints.
  std::vector<std::byte> skipped(std::min(piece_bytes, target - block_.done));
  while (block_.done < target) advance(MutableBytes{skipped}.first(std::min(skipped.size(), target - block_.done)));
}

void WeightStream::finish() {
  if (block_.rank < 0) return;
  skip_to(block_.size_bytes);
  const Block done = std::exchange(block_, Block{});
  if (done.hasher.digest() != shards_.shard(done.rank).tables[done.dataset][done.number])
    shards_.fail_block(done.rank, done.dataset, done.number);
}

}  // namespace argosy::checkpoint
