#include <sys/stat.h>

#include "load_fixture.hpp"

namespace argosy::checkpoint {
namespace {

/// The folder by itself, with a log.
class RetentionTest : public LoadTest {
 protected:
  RetentionTest() { testing::internal::CaptureStderr(); }
  ~RetentionTest() override { testing::internal::GetCapturedStderr(); }
  RunFolder owner(std::int64_t max_checkpoints) { return LoadTest::owner(max_checkpoints, run); }
  std::string logged() {
    log.flush();
    text_ += testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return text_;
  }

 private:
  std::string text_;
};

TEST_F(RetentionTest, KeepsTheStepsOfKeepTxt) {
  prepare({1, 2, 3, 4});
  Files::system().write_atomically(run / "keep.txt", "2\n\n  000000001 \r\nnewest\n-3\n99999999999999999999\n7");
  RunFolder folder_of_run = owner(1);
  folder_of_run.tidy(at(4));
  EXPECT_EQ(names(), (Names{"000000001", "000000002", "000000004"}));
  EXPECT_TRUE(test::says(logged(), "keep.txt:4: \"newest\" is not a step", ":5: ", ":6: "));
  const std::size_t length = logged().size();
  folder_of_run.tidy(at(4));
  EXPECT_EQ(logged().size(), length) << "warned of once";
}

TEST_F(RetentionTest, RemovesNothingWhileKeepTxtCannotBeRead) {
  prepare({1, 2, 3});
  Files::system().write_atomically(run / "keep.txt", "1\n");
  RunFolder folder_of_run = owner(1);
  os.fail(test::Call::pread, os.count(test::Call::pread), EIO);
  folder_of_run.tidy(at(3));
  EXPECT_EQ(names().size(), 3U);
  EXPECT_TRUE(test::says(logged(), "old checkpoints could not be removed"));
}

TEST_F(RetentionTest, RemovesNothingWhileKeepTxtIsALinkOrAFifo) {
  prepare({1, 2, 3});
  Files::system().write_atomically(folder / "theirs", "1\n");
  Files::system().link_symbolically(folder / "theirs", run / "keep.txt");
  owner(1).tidy(at(3));
  EXPECT_EQ(names().size(), 3U);
  EXPECT_TRUE(test::says(logged(), "old checkpoints could not be removed"));
  Files::system().remove(run / "keep.txt");
  ASSERT_EQ(mkfifo((run / "keep.txt").c_str(), 0600), 0);
  owner(1).tidy(at(3));
  EXPECT_EQ(names().size(), 3U);
  Files::system().remove(run / "keep.txt");
  owner(1).tidy(at(3));
  EXPECT_EQ(names(), Names{"000000003"});
}

TEST_F(RetentionTest, ALatestThatCannotBeMadeKeepsNothingFromBeingTidied) {
  prepare({1, 2, 3});
  Files::system().remove(run / "latest");
  Files::system().make_folder(run / "latest");
  owner(2).tidy(at(3));
  EXPECT_EQ(names(), (Names{"000000002", "000000003"}));
  EXPECT_TRUE(test::says(logged(), "`latest` could not be updated"));
  for (const std::string& name : Files::system().list(run)) EXPECT_FALSE(name.starts_with("latest.tmp-")) << name;
}

TEST_F(RetentionTest, CountsOnlySoundOnesOfThisRun) {
  prepare({1, 2, 3, 4, 5});
  Files::system().update(at(5) / shard_name(0, 1)).truncate(1000);
  Files::system().remove(at(4) / "MANIFEST.json");
  test::write_checkpoint(Files::system(), at(6), test::tiny_units(), partition::Layout{{1}}, 6);
  Files::system().make_folders(at(8));
  owner(2).tidy(at(3));
  EXPECT_EQ(names(), (Names{"000000002", "000000003", "000000004", "000000005", "000000006", "000000008"}));
}

TEST_F(RetentionTest, KeepsTheOneLoadedUntilFiveNewerAreCommitted) {
  prepare({1});
  Store store = open(2);
  EXPECT_EQ(load(store), 1);
  for (int step = 2; step <= 5; ++step) save(store, step);
  EXPECT_EQ(names(), (Names{"000000001", "000000004", "000000005"}));
  save(store, 6);
  EXPECT_EQ(names(), (Names{"000000005", "000000006"}));
}

TEST_F(RetentionTest, KeepsAsManyAsASettingOfMoreThan32BitsSays) {
  prepare({1, 2, 3});
  owner((std::int64_t{1} << 32) + 1).tidy(at(3));
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(RetentionTest, KeepsWhatTheCheckpointLoadedSaysIsTheBest) {
  const auto with_best = [](std::int64_t step) {
    Sections sections = test::toy_sections();
    sections.best = {{"keep", {step}}};
    return sections;
  };
  {
    Store store = open();
    save(store, 1, Kind::temp, true, true, with_best(1));
    save(store, 2, Kind::temp, true, true, with_best(1));
    save(store, 3, Kind::temp, true, false, with_best(3));  // holds NaN, and whoever says so is passed over
  }
  Store store = open(1);
  EXPECT_EQ(load(store), 2);
  EXPECT_EQ(names(), (Names{"000000001", "000000002", "000000003"}));
}

TEST_F(RetentionTest, ACheckpointIsRenamedAndTheParentSyncedBeforeItIsRemoved) {
  prepare({1, 2});
  RunFolder folder_of_run = owner(1);
  const std::size_t begin = os.count();
  folder_of_run.tidy(at(2));
  std::vector<std::string> steps;
  for (const auto& r : os.records_from(begin)) {
    if (r.call == test::Call::rename_noreplace)
      steps.push_back(r.to.find("/.del-000000001-") == std::string::npos ? "?" : "rename");
    if (r.call == test::Call::fsync) steps.push_back(r.path == (run / "checkpoints").string() ? "sync" : "?");
    if (r.call == test::Call::unlink && r.path.find("MANIFEST") != std::string::npos) steps.push_back("unlink");
  }
  EXPECT_EQ(steps, (Names{"rename", "sync", "unlink"}));
}

TEST_F(RetentionTest, MakesWayForACommitWherePassedOverOnesLie) {
  prepare({1});
  save_alone(2, Kind::temp, true, false);
  prepare({3});
  RunFolder folder_of_run = owner(5);
  folder_of_run.begin_walk();
  folder_of_run.pass_over(at(3), Error{Fault::io, {.got = "EIO"}});
  folder_of_run.put_aside();
  EXPECT_EQ(names().size(), 3U) << "what could not be read stays until its name is needed";
  folder_of_run.make_way(at(1));
  EXPECT_EQ(names().size(), 3U) << "and what was not passed over stays for good";
  folder_of_run.make_way(at(3));
  EXPECT_EQ(names(), (Names{".bad-000000003-unreadable", "000000001", "000000002"}));
  test::write_checkpoint(Files::system(), at(3), test::tiny_units(), partition::Layout{{1}}, 3);
  folder_of_run.make_way(at(3));
  EXPECT_TRUE(Files::system().exists(at(3))) << "what lies there now is another one";
}

}  // namespace
}  // namespace argosy::checkpoint
