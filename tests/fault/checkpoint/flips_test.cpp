#include <gtest/gtest.h>

#include <map>

#include "damage.hpp"

/// One flipped bit anywhere: what is loaded are the bytes that were saved, or the damage is seen and the older one is
/// loaded.
namespace argosy::test {
namespace {

constexpr std::uint64_t flips_stream = 11;
constexpr int in_ci = is_sanitized ? 200 : 1000;

/// The file offsets of a shard that hold payload or digests, by first byte: end.
std::map<std::uint64_t, std::uint64_t> payload_ranges(const Path& checkpoint, int rank) {
  std::map<std::uint64_t, std::uint64_t> ranges;
  for (const checkpoint::ShardMap::Dataset& dataset : map_of(checkpoint, rank).datasets) {
    if (dataset.spec.elements == 0) continue;
    ranges[dataset.offset] = dataset.offset + dataset.spec.size_bytes();
    ranges[dataset.digest_offset] = dataset.digest_offset + dataset.spec.blocks() * 16;
  }
  return ranges;
}

bool is_payload(const std::map<std::uint64_t, std::uint64_t>& ranges, std::uint64_t offset) {
  const auto after = ranges.upper_bound(offset);
  return after != ranges.begin() && offset < std::prev(after)->second;
}

struct Bit {
  int rank = 0, bit = 0;  // of the byte
  Path path;
  std::uint64_t at = 0;

  void flip() const { test::flip(path, at, bit); }
  [[nodiscard]] std::string text() const { return fmt::format("bit {} of byte {} of rank {}", bit, at, rank); }
};

/// Any bit of the newer checkpoint's shards, of payload and digests or of the rest.
Bit any_bit(const DamagedRun& run, RandomStream& random, bool of_payload) {
  Bit any;
  any.rank = static_cast<int>(random.below(static_cast<std::uint64_t>(run.ranks())));
  any.path = run.shard(run.newer(), any.rank);
  const auto ranges = payload_ranges(run.newer(), any.rank);
  const std::uint64_t size_bytes = Files::system().stat(any.path)->size_bytes;
  do any.at = random.below(size_bytes);
  while (is_payload(ranges, any.at) != of_payload);
  any.bit = static_cast<int>(random.below(8));
  return any;
}

/// Flips `count` bits in turn, of runs of one to four ranks. Returns how many of them `is_seen(run)` says were seen.
template <class IsSeen>
int seen_flips(int count, std::uint64_t seed, bool of_payload, const IsSeen& is_seen) {
  int seen = 0;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    DamagedRun run{ranks};
    RandomStream random{seed, flips_stream + static_cast<std::uint64_t>(ranks)};
    for (int i = 0; i < count / 4 && !testing::Test::HasFailure(); ++i) {
      const Bit bit = any_bit(run, random, of_payload);
      SCOPED_TRACE(fmt::format("{} of {}, ARGOSY_FAULT_SEED={}", bit.text(), ranks, seed));
      bit.flip();
      seen += is_seen(run) ? 1 : 0;
      bit.flip();
    }
    EXPECT_EQ(run.load(), DamagedRun::newer_step);
  }
  return seen;
}

TEST(Flips, OfPayloadAndDigestsAreSeen) {
  const int count = scaled(in_ci);
  const int seen = seen_flips(count, fault_seed(1), true, [](DamagedRun& run) {
    const std::int64_t step = run.load();
    EXPECT_NE(step, 0) << "silently wrong";
    return step == DamagedRun::older_step;
  });
  EXPECT_GT(seen, count * 9 / 10) << "of datasets of pads alone nothing is read";
}

TEST(Flips, OfHdf5MetadataAreSeenOrHarmless) {
  const int count = scaled(in_ci);
  const int seen = seen_flips(count, fault_seed(2), false, [](const DamagedRun& run) {
    const DamagedRun::Verdict verdict = run.read_in_a_child();
    EXPECT_TRUE(is_safe(verdict)) << "verdict " << static_cast<int>(verdict);
    return verdict == DamagedRun::Verdict::detected;
  });
  EXPECT_GT(seen, count / 4) << "many bytes are unused";
}

}  // namespace
}  // namespace argosy::test
