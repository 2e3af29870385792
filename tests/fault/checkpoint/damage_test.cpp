#include "damage.hpp"

#include <gtest/gtest.h>

#include <algorithm>

/// Files cut short, zeroed, missing, or of another save: seen, and the older checkpoint is loaded.
namespace argosy::test {
namespace {

constexpr std::uint64_t damage_stream = 12;

class DamagedFiles : public testing::TestWithParam<int> {
 protected:
  /// The damage `content` to a file of the newer checkpoint is seen.
  void expect_seen(const Path& path, const std::string& content, const std::string& what) {
    const DamagedRun::Damage damage{path, content};
    EXPECT_EQ(run.load(), DamagedRun::older_step) << what << ", ARGOSY_FAULT_SEED=" << seed;
  }
  int some_rank() { return static_cast<int>(random.below(static_cast<std::uint64_t>(run.ranks()))); }

  std::uint64_t seed = fault_seed(4);
  RandomStream random{seed, damage_stream + static_cast<std::uint64_t>(GetParam())};
  DamagedRun run{GetParam()};
};

TEST_P(DamagedFiles, CutShort) {
  for (int i = 0; i < scaled(50); ++i) {
    const Path shard = run.shard(run.newer(), some_rank());
    const Path path =
        i % 5 == 0 ? run.newer() / checkpoint::manifest_name : (i % 5 == 1 ? run.newer() / "tokenizer.model" : shard);
    const std::string whole = content_of(path);
    const std::uint64_t length = random.below(whole.size());
    expect_seen(path, whole.substr(0, length), fmt::format("{} cut to {}", path.filename().string(), length));
  }
  EXPECT_EQ(run.load(), DamagedRun::newer_step);
}

TEST_P(DamagedFiles, WithAPageOfZeros) {
  constexpr std::uint64_t page = 4096;
  int seen = 0, changed = 0;
  for (int i = 0; i < scaled(50); ++i) {
    const Path path = run.shard(run.newer(), some_rank());
    std::string content = content_of(path);
    const std::string whole = content;
    const std::uint64_t at = random.below(content.size() / page + 1) * page;
    const std::size_t zeros = std::min<std::size_t>(page, content.size() - at);
    content.replace(at, zeros, zeros, '\0');
    if (content == whole) continue;
    ++changed;
    const DamagedRun::Damage damage{path, content};
    const DamagedRun::Verdict verdict = run.read_in_a_child();
    EXPECT_TRUE(is_safe(verdict)) << "verdict " << static_cast<int>(verdict) << ", page at " << at
                                  << ", ARGOSY_FAULT_SEED=" << seed;
    const std::int64_t step = run.load();
    EXPECT_NE(step, 0) << "silently wrong: page at " << at << ", ARGOSY_FAULT_SEED=" << seed;
    seen += step == DamagedRun::older_step ? 1 : 0;
  }
  EXPECT_GT(seen, changed * 8 / 10) << "of datasets of pads alone nothing is read";
}

TEST_P(DamagedFiles, Missing) {
  for (int rank = 0; rank < run.ranks(); ++rank) {
    const Path path = run.shard(run.newer(), rank), away = run.older() / "away";
    std::filesystem::rename(path, away);
    EXPECT_EQ(run.load(), DamagedRun::older_step) << "rank " << rank;
    std::filesystem::rename(away, path);
  }
  EXPECT_EQ(run.load(), DamagedRun::newer_step);
}

TEST_P(DamagedFiles, OfAnotherStepRunOrSave) {
  const Path other_run = run.twin(std::string(32, 'c'), "0000000000000002"),
             other_save = run.twin("", "0000000000000009");
  for (int rank = 0; rank < run.ranks(); ++rank) {
    const Path path = run.shard(run.newer(), rank);
    expect_seen(path, content_of(run.shard(run.older(), rank)), "the shard of another step");
    expect_seen(path, content_of(run.shard(other_run, rank)), "the shard of another run, with the same payload");
    expect_seen(path, content_of(run.shard(other_save, rank)), "the shard of another save, with the same payload");
  }
  EXPECT_EQ(run.load(), DamagedRun::newer_step);
}

TEST_P(DamagedFiles, OfAnotherRank) {
  for (int rank = 0; rank < run.ranks(); ++rank)
    for (int other = 0; other < run.ranks(); ++other) {
      if (rank == other) continue;
      expect_seen(run.shard(run.newer(), rank), content_of(run.shard(run.newer(), other)),
                  fmt::format("the shard of rank {} for that of rank {}", other, rank));
    }
  EXPECT_EQ(run.load(), DamagedRun::newer_step);
}

TEST_P(DamagedFiles, AManifestOfAnotherStep) {
  expect_seen(run.newer() / checkpoint::manifest_name, content_of(run.older() / checkpoint::manifest_name),
              "the manifest of another step");
  const Path other = run.twin("", "0000000000000009");
  expect_seen(run.newer() / checkpoint::manifest_name, content_of(other / checkpoint::manifest_name),
              "the manifest of another save");
}

INSTANTIATE_TEST_SUITE_P(Ranks, DamagedFiles, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

}  // namespace
}  // namespace argosy::test
