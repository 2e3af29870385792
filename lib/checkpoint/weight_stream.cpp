#include "checkpoint/weight_stream.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace argosy::checkpoint {

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
