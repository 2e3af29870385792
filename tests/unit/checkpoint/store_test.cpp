#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_file.hpp"
#include "core/error.hpp"
#include "core/owner.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::checkpoint {
namespace {

class StoreTest : public testing::Test {
 protected:
  Store open(int max_checkpoints = 5) { return Store{context.get(), run, {.max_checkpoints = max_checkpoints}}; }
  SaveReport save(Store& store, std::int64_t step, Kind kind = Kind::temp, bool with_moments = true) {
    test::Toy toy{test::tiny_units(), context.topology().layout(), 0};
    return store.save(kind, step, toy.fill(static_cast<std::uint64_t>(step)).states(with_moments), test::toy_sections(),
                      test::toy_attachments());
  }
  void expect_state(const Reader& reader) {
    test::Toy wanted{test::tiny_units(), context.topology().layout(), 0},
        got{test::tiny_units(), context.topology().layout(), 0};
    reader.read_state(got.states(), 0);
    EXPECT_TRUE(got == wanted.fill(static_cast<std::uint64_t>(reader.step())));
  }
  template <class Body>
  Fault fault_of(const Body& body) {
    const Error error = test::error_of(body);
    text = error.what();
    return error.fault();
  }
  std::vector<std::string> names(const Path& of) { return Files::system().list(of); }
  Path step_folder(std::int64_t step) { return run / "checkpoints" / fmt::format("{:09}", step); }

  test::FaultyOs os;
  test::TempFolder folder;
  Path run = folder / "runs" / "mt";
  test::TestContext context{os, test::world()};
  std::string text;
};

TEST_F(StoreTest, HasNothingAtFirst) {
  const Store store = open();
  EXPECT_FALSE(store.newest());
  EXPECT_TRUE(Files::system().exists(run / "run.json"));
}

TEST_F(StoreTest, FindsTheNewestAfterARestart) {
  {
    Store store = open();
    EXPECT_TRUE(save(store, 10).committed);
    const SaveReport report = save(store, 20);
    EXPECT_TRUE(report.committed) << report.why_not;
    EXPECT_EQ(report.directory, step_folder(20));
    EXPECT_GT(report.bytes, 12'000U);
    EXPECT_EQ(os.open_files(), 0U);
  }
  const Store store = open();
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step(), 20);
  expect_state(*newest);
  EXPECT_EQ(std::filesystem::read_symlink(run / "latest"), "checkpoints/000000020");
}

TEST_F(StoreTest, ExportsAreCandidatesWhenTheyHoldEverything) {
  Store store = open();
  EXPECT_TRUE(save(store, 10).committed);
  EXPECT_TRUE(save(store, 20, Kind::export_).committed);
  EXPECT_TRUE(save(store, 30, Kind::export_, false).committed);
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->directory(), run / "export" / "000000020");
  EXPECT_EQ(newest->manifest().at("kind"), "export");
}

TEST_F(StoreTest, KeepsTheNewestTemporariesAndAllExports) {
  Store store = open(2);
  for (int step = 1; step <= 4; ++step) {
    EXPECT_TRUE(save(store, step).committed);
    EXPECT_TRUE(save(store, step, Kind::export_).committed);
  }
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000003", "000000004"}));
  EXPECT_EQ(names(run / "export").size(), 4U);
}

TEST_F(StoreTest, NeverRemovesTheNewestFiniteOne) {
  Store store = open(2);
  EXPECT_TRUE(save(store, 1).committed);
  EXPECT_TRUE(save(store, 2).committed);
  for (int step = 3; step <= 5; ++step) {
    test::Toy toy{test::tiny_units(), context.topology().layout(), 0};
    toy.fill(1).tensor(1, 0)[3] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(store.save(Kind::temp, step, toy.states(), test::toy_sections(), {}).committed);
  }
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000002", "000000004", "000000005"}));
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step(), 2) << "what is not finite is not resumed from";
}

TEST_F(StoreTest, KeepsWhatTheNewestNamesAsBestUntilItNamesAnother) {
  Store store = open(2);
  test::Toy toy{test::tiny_units(), context.topology().layout(), 0};
  const auto save_with_best = [&](std::int64_t step, std::int64_t best) {
    checkpoint::Sections sections = test::toy_sections();
    sections.best = {{"keep", boost::json::array{best, "no step", -1}}};
    EXPECT_TRUE(store.save(Kind::temp, step, toy.fill(1).states(), sections, {}).committed);
  };
  for (const std::int64_t step : {1, 2, 3, 4, 5}) save_with_best(step, 2);
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000002", "000000004", "000000005"}));
  save_with_best(6, 4);
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000004", "000000005", "000000006"}));
  save_with_best(7, 7);
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000006", "000000007"}));
}

TEST_F(StoreTest, SweepsWhatDeadSavesLeft) {
  { const Store store = open(); }
  for (const char* name : {".tmp-000000030-0123456789abcdef", ".del-000000010-01234567"}) {
    Files::system().make_folders(run / "checkpoints" / name / "deep");
    Files::system().write_atomically(run / "checkpoints" / name / "deep" / "x", "x");
  }
  Files::system().link_symbolically("checkpoints/000000001", run / "latest.tmp-0a1b2c3d");
  for (const char* name : {"status.json", "run.json", "run.lock.1", "exit.4711.0"})
    Files::system().write_atomically(run / (name + std::string{".tmp-0123456789abcdef"}), "x");
  const Store store = open();
  EXPECT_TRUE(names(run / "checkpoints").empty());
  EXPECT_EQ(names(run), (std::vector<std::string>{"checkpoints", "run.json", "run.lock.2"}));
}

TEST_F(StoreTest, SweepsNothingThatPeopleMayHaveNamed) {
  { const Store store = open(); }
  // As Argosy's own names, but for one digit or the name before it.
  const std::vector<std::string> files{"latest.tmp-0a1b2c3d4e5f6071",       "model.tmp-0a",
                                       "notes.tmp-0123456789abcdef",        "notes.tmp-of-mine",
                                       "run.json.tmp-0123456789abcde",      "run.lock.mine.tmp-0123456789abcdef",
                                       "status.json.tmp-0123456789abcdef0", ".tmp-12"};
  const std::vector<std::string> folders{".bad-000000001-files.copy", ".bad-000000002-mine", ".bad-000000003-content-x",
                                         ".del-12-01234567",          ".tmp-000000030-0123", ".tmp-mine"};
  for (const std::string& name : files) Files::system().write_atomically(run / name, "x");
  for (const std::string& name : folders) Files::system().make_folders(run / "checkpoints" / name / "deep");
  Store store = open();
  for (const std::int64_t step : {1, 2, 3, 4}) EXPECT_TRUE(save(store, step).committed);
  for (const std::string& name : files) EXPECT_TRUE(Files::system().exists(run / name)) << name;
  for (const std::string& name : folders)
    EXPECT_TRUE(Files::system().exists(run / "checkpoints" / name / "deep")) << name;
}

TEST_F(StoreTest, SweepsEveryFileThatItsTemporariesCanBe) {
  { const Store store = open(); }
  const std::vector<std::string> left{"run.json", "status.json", "metrics.jsonl", "run.lock.7", "exit.42.0"};
  for (const std::string& name : left) Files::system().write_atomically(run / (name + ".tmp-0123456789abcdef"), "x");
  const Store store = open();
  for (const std::string& name : left)
    EXPECT_FALSE(Files::system().exists(run / (name + ".tmp-0123456789abcdef"))) << name;
}

TEST_F(StoreTest, AFolderNamedAsItsTemporariesBlocksNoStart) {
  { const Store store = open(); }
  const Path blocking = run / "status.json.tmp-0123456789abcdef";
  Files::system().make_folders(blocking / "deep");
  Store store = open();
  EXPECT_TRUE(save(store, 1).committed);
  EXPECT_TRUE(Files::system().exists(blocking / "deep"));
}

TEST_F(StoreTest, RefusesASecondJob) {
  const Store first = open();
  EXPECT_EQ(fault_of([&] { open(); }), Fault::usage);
  EXPECT_NE(text.find(fmt::format("process {}", getpid())), std::string::npos) << text;
}

TEST_F(StoreTest, NeitherCreatesNorCommitsAfterATakeOver) {
  Store store = open();
  EXPECT_TRUE(save(store, 1).committed);
  const auto owner = Owner::of_this_process(Files::system(), Clock{});
  Files::system().write_atomically(run / "run.lock.2", owner.text());
  EXPECT_EQ(fault_of([&] { save(store, 2); }), Fault::usage);
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000001"}));
}

TEST_F(StoreTest, ReportsASaveOverAnotherCheckpoint) {
  Store store = open();
  EXPECT_TRUE(save(store, 1).committed);
  const SaveReport again = save(store, 1);
  EXPECT_FALSE(again.committed);
  EXPECT_NE(again.why_not.find("was created by another process during the save"), std::string::npos) << again.why_not;
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000001"}));
  expect_state(*store.newest());
}

TEST_F(StoreTest, ReportsAFullDiskBeforeWritingAnything) {
  class SmallDisk : public test::FaultyOs {
   public:
    int statvfs(const char* path, struct statvfs* out) override {
      const int result = test::FaultyOs::statvfs(path, out);
      out->f_bavail = 100'000 / out->f_frsize;
      return result;
    }
  } small;
  test::TestContext here{small, test::world()};
  Store store{here.get(), run, {}};
  const SaveReport report = save(store, 1);
  EXPECT_FALSE(report.committed);
  EXPECT_NE(report.why_not.find("bytes of free space"), std::string::npos) << report.why_not;
  EXPECT_TRUE(names(run / "checkpoints").empty());
  EXPECT_EQ(small.count(test::Call::fallocate), 0U) << "no shard was begun";
}

TEST_F(StoreTest, AFailedSaveLeavesTheEarlierOneAndNothingElse) {
  Store store = open();
  EXPECT_TRUE(save(store, 1).committed);
  os.fail(test::Call::fsync, os.count(test::Call::fsync) + 2, EIO);
  const SaveReport failed = save(store, 2);
  EXPECT_FALSE(failed.committed);
  EXPECT_NE(failed.why_not.find("EIO"), std::string::npos) << failed.why_not;
  EXPECT_EQ(names(run / "checkpoints"), (std::vector<std::string>{"000000001"}));
  EXPECT_TRUE(save(store, 3).committed) << "and the run goes on";
  EXPECT_EQ(store.newest()->step(), 3);
}

TEST_F(StoreTest, AnUnwritableDirectoryIsOneClearError) {
  Files::system().write_atomically(folder / "file", "x");
  EXPECT_EQ(fault_of([&] { Store{context.get(), folder / "file" / "run", {}}; }), Fault::io);
  EXPECT_NE(text.find("a folder in the path is a file"), std::string::npos) << text;
  os.fail(test::Call::mkdir, os.count(test::Call::mkdir), EACCES);
  EXPECT_EQ(fault_of([&] { open(); }), Fault::io);
  EXPECT_NE(text.find("check the permissions"), std::string::npos) << text;
}

TEST_F(StoreTest, FallsBackFromADamagedCheckpointAndPutsItAside) {
  {
    Store store = open();
    for (int step = 1; step <= 3; ++step) EXPECT_TRUE(save(store, step).committed);
  }
  Files::system().update(step_folder(3) / shard_name(0, 1)).truncate(1000);
  test::flip(step_folder(2) / "MANIFEST.json", 100);
  Store store = open();
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step(), 1);
  const auto left = names(run / "checkpoints");
  ASSERT_EQ(left.size(), 3U);
  EXPECT_TRUE(left[0].starts_with(".bad-000000002-")) << left[0];
  EXPECT_TRUE(left[1].starts_with(".bad-000000003-")) << left[1];
  EXPECT_TRUE(save(store, 2).committed) << "the name is free again";
}

TEST_F(StoreTest, NeverStartsOverSilently) {
  {
    Store store = open();
    for (int step = 1; step <= 2; ++step) EXPECT_TRUE(save(store, step).committed);
  }
  Files::system().update(step_folder(1) / shard_name(0, 1)).truncate(1000);
  test::flip(step_folder(2) / "MANIFEST.json", 100);
  const Store store = open();
  EXPECT_EQ(fault_of([&] { static_cast<void>(store.newest()); }), Fault::corrupt);
  EXPECT_NE(text.find("000000001"), std::string::npos) << text;
  EXPECT_NE(text.find("000000002"), std::string::npos) << text;
  EXPECT_EQ(names(run / "checkpoints").size(), 2U) << "nothing was touched";
}

TEST_F(StoreTest, RefusesCheckpointsOfAnotherRun) {
  {
    Store store = open();
    EXPECT_TRUE(save(store, 1).committed);
  }
  Files::system().write_atomically(run / "run.json", "{\"run_uuid\":\"00000000000000000000000000000000\"}");
  {
    const Store store = open();
    EXPECT_EQ(fault_of([&] { static_cast<void>(store.newest()); }), Fault::corrupt);
    EXPECT_NE(text.find("another run"), std::string::npos) << text;
  }
  Files::system().remove(run / "run.json");
  const Store store = open();
  ASSERT_TRUE(store.newest()) << "without run.json the run is that of its checkpoints";
}

TEST_F(StoreTest, ADamagedRunFileIsOneClearError) {
  { const Store store = open(); }
  Files::system().write_atomically(run / "run.json", "{}");
  EXPECT_EQ(fault_of([&] { open(); }), Fault::corrupt);
}

TEST_F(StoreTest, ACheckpointOfANewerFormatIsNoDamage) {
  {
    Store store = open();
    EXPECT_TRUE(save(store, 1).committed);
    EXPECT_TRUE(save(store, 2).committed);
  }
  test::edit_manifest(step_folder(2), [](auto& o) { o["format_version"] = {{"major", 9}, {"minor", 0}}; });
  const Store store = open();
  EXPECT_EQ(fault_of([&] { static_cast<void>(store.newest()); }), Fault::usage);
  EXPECT_TRUE(Files::system().exists(step_folder(2)));
}

}  // namespace
}  // namespace argosy::checkpoint
