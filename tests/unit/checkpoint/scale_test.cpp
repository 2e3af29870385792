#include "load_fixture.hpp"
#include "support/hollow_checkpoint.hpp"

/// What the owner of a run directory asks of the file system, as the number of shards grows.
namespace argosy::checkpoint {
namespace {

class Scale : public LoadTest {
 protected:
  /// Calls of each of three commits after a start, files removed left out.
  std::vector<std::size_t> calls_of_commits(int world) {
    const Path here = run / std::to_string(world);
    const auto commit = [&](std::int64_t step) {
      const Path target = here / fmt::format("checkpoints/{:09}", step);
      test::commit_hollow_checkpoint(Files::system(), target, world, step);
      return target;
    };
    Files::system().make_folders(here / "checkpoints");
    for (int step = 1; step <= 3; ++step) commit(step);
    RunFolder folder_of_run = owner(3, here);
    std::vector<std::size_t> calls;
    for (int step = 4; step <= 6; ++step) {
      const Path committed = commit(step);
      const std::size_t before = os.count() - os.count(test::Call::unlink);
      folder_of_run.tidy(committed);
      calls.push_back(os.count() - os.count(test::Call::unlink) - before);
      EXPECT_EQ(Files::system().list(here / "checkpoints").size(), 3U) << world;
    }
    return calls;
  }
};

TEST_F(Scale, ACommitsCallsDoNotGrowWithTheShards) {
  const std::vector<std::size_t> few = calls_of_commits(16), many = calls_of_commits(256);
  EXPECT_EQ(few[1], few[2]);
  EXPECT_EQ(many[1], few[1]);
  EXPECT_EQ(many[2], few[2]);
}

TEST_F(Scale, AStartLooksAtNoMoreThanItLoads) {
  test::commit_hollow_checkpoint(Files::system(), at(1), 64, 1);
  test::commit_hollow_checkpoint(Files::system(), at(2), 64, 2);
  RunFolder folder_of_run = owner(2, run);
  folder_of_run.begin_walk();
  ASSERT_TRUE(folder_of_run.next_candidate());
  const std::size_t before = os.count();
  folder_of_run.settle(at(2));
  EXPECT_LT(os.count() - before, 10U) << "nothing has to be removed";
}

TEST_F(Scale, WhatChangesUnderARunIsLookedAtAgain) {
  for (int step = 1; step <= 4; ++step) test::commit_hollow_checkpoint(Files::system(), at(step), 4, step);
  RunFolder folder_of_run = owner(3, run);
  folder_of_run.tidy(at(4));
  ASSERT_EQ(names().size(), 3U);
  Files::system().update(at(3) / shard_name(2, 4)).truncate(1000);
  test::commit_hollow_checkpoint(Files::system(), at(5), 4, 5);
  folder_of_run.tidy(at(5));
  EXPECT_EQ(names(), (Names{"000000002", "000000003", "000000004", "000000005"})) << "a damaged one is not counted";
}

TEST_F(Scale, AJobThatLeavesRemovesNothing) {
  prepare({1, 2, 3});
  Store store = open(2);
  EXPECT_EQ(load(store), 3);
  EXPECT_EQ(names(), (Names{"000000002", "000000003"}));
  test::Toy toy{test::tiny_units(), partition::Layout{{1}}, 0};
  store.begin_save(Kind::temp, 4, toy.fill(4).states(), test::toy_sections(), {});
  EXPECT_TRUE(store.finish_save(Tidy::at_next_load)->committed);
  EXPECT_EQ(names(), (Names{"000000002", "000000003", "000000004"}));
  EXPECT_EQ(Files::system().read_text(run / "latest/MANIFEST.json"),
            Files::system().read_text(at(4) / "MANIFEST.json"));
  EXPECT_EQ(load(store), 4);
  EXPECT_EQ(names(), (Names{"000000003", "000000004"}));
}

}  // namespace
}  // namespace argosy::checkpoint
