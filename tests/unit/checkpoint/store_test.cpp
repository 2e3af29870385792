#include "core/owner.hpp"
#include "load_fixture.hpp"

namespace argosy::checkpoint {
namespace {

/// Of a run in a folder that is not there yet.
class StoreTest : public LoadTest {
 protected:
  StoreTest() { run = folder / "runs" / "mt"; }
};

TEST_F(StoreTest, FindsTheNewestAfterARestart) {
  {
    Store store = open();
    save(store, 10);
    const SaveReport report = try_save(store, 20);
    EXPECT_TRUE(report.committed) << report.why_not;
    EXPECT_EQ(report.directory, at(20));
    EXPECT_GT(report.bytes, 12'000U);
    EXPECT_EQ(os.open_files(), 0U);
  }
  const Store store = open();
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step(), 20);
  expect_state(*newest, test::tiny_units(), {{1}}, 20);
  EXPECT_EQ(std::filesystem::read_symlink(run / "latest"), "checkpoints/000000020");
}

TEST_F(StoreTest, ExportsAreCandidatesWhenTheyHoldEverything) {
  Store store = open();
  save(store, 10);
  save(store, 20, Kind::export_);
  save(store, 30, Kind::export_, false);
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->directory(), at(20, "export"));
  EXPECT_EQ(newest->manifest().at("kind"), "export");
}

TEST_F(StoreTest, KeepsTheNewestTemporariesAndAllExports) {
  Store store = open(2);
  for (int step = 1; step <= 4; ++step) {
    save(store, step);
    save(store, step, Kind::export_);
  }
  EXPECT_EQ(names(), (Names{"000000003", "000000004"}));
  EXPECT_EQ(names("export").size(), 4U);
}

TEST_F(StoreTest, NeverRemovesTheNewestFiniteOne) {
  Store store = open(2);
  for (int step = 1; step <= 5; ++step) save(store, step, Kind::temp, true, step < 3);
  EXPECT_EQ(names(), (Names{"000000002", "000000004", "000000005"}));
  EXPECT_EQ(store.newest().value().step(), 2) << "what is not finite is not resumed from";
}

TEST_F(StoreTest, KeepsWhatTheNewestNamesAsBestUntilItNamesAnother) {
  Store store = open(2);
  const auto save_with_best = [&](std::int64_t step, std::int64_t best) {
    Sections sections = test::toy_sections();
    sections.best = {{"keep", boost::json::array{best, "no step", -1}}};
    save(store, step, Kind::temp, true, true, sections);
  };
  for (const std::int64_t step : {1, 2, 3, 4, 5}) save_with_best(step, 2);
  EXPECT_EQ(names(), (Names{"000000002", "000000004", "000000005"}));
  save_with_best(6, 4);
  EXPECT_EQ(names(), (Names{"000000004", "000000005", "000000006"}));
  save_with_best(7, 7);
  EXPECT_EQ(names(), (Names{"000000006", "000000007"}));
}

TEST_F(StoreTest, SweepsWhatDeadSavesLeft) {
  { const Store store = open(); }
  for (const char* name : {".tmp-000000030-0123456789abcdef", ".del-000000010-01234567"}) {
    Files::system().make_folders(run / "checkpoints" / name / "deep");
    Files::system().write_atomically(run / "checkpoints" / name / "deep" / "x", "x");
  }
  Files::system().link_symbolically("checkpoints/000000001", run / "latest.tmp-0a1b2c3d");
  for (const char* name : {"status.json", "run.json", "run_config.json", "metrics.jsonl", "run.lock.1", "exit.4711.0"})
    Files::system().write_atomically(run / (name + std::string{".tmp-0123456789abcdef"}), "x");
  const Store store = open();
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(Files::system().list(run), (Names{"checkpoints", "run.json", "run.lock.2"}));
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
  for (const std::int64_t step : {1, 2, 3, 4}) save(store, step);
  for (const std::string& name : files) EXPECT_TRUE(Files::system().exists(run / name)) << name;
  for (const std::string& name : folders)
    EXPECT_TRUE(Files::system().exists(run / "checkpoints" / name / "deep")) << name;
}

TEST_F(StoreTest, AFolderNamedAsItsTemporariesBlocksNoStart) {
  { const Store store = open(); }
  const Path blocking = run / "status.json.tmp-0123456789abcdef";
  Files::system().make_folders(blocking / "deep");
  Store store = open();
  save(store, 1);
  EXPECT_TRUE(Files::system().exists(blocking / "deep"));
}

TEST_F(StoreTest, NeitherCreatesNorCommitsAfterATakeOver) {
  Store store = open();
  save(store, 1);
  Files::system().write_atomically(run / "run.lock.2", Owner::of_this_process(Files::system(), Clock{}).text());
  test::refusal(Fault::usage, [&] { save(store, 2); });
  EXPECT_EQ(names(), Names{"000000001"});
}

TEST_F(StoreTest, ReportsASaveOverAnotherCheckpoint) {
  Store store = open();
  save(store, 1);
  const SaveReport again = try_save(store, 1);
  EXPECT_FALSE(again.committed);
  EXPECT_TRUE(test::says(again.why_not, "was created by another process during the save"));
  EXPECT_EQ(names(), Names{"000000001"});
  expect_state(*store.newest(), test::tiny_units(), {{1}}, 1);
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
  const SaveReport report = try_save(store, 1);
  EXPECT_FALSE(report.committed);
  EXPECT_TRUE(test::says(report.why_not, "bytes of free space"));
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(small.count(test::Call::fallocate), 0U) << "no shard was begun";
}

TEST_F(StoreTest, AnUnwritableDirectoryIsOneClearError) {
  Files::system().write_atomically(folder / "file", "x");
  const auto below_a_file = [&] { Store{context.get(), folder / "file" / "run", {}}; };
  EXPECT_TRUE(test::says(test::refusal(Fault::io, below_a_file), "a folder in the path is a file"));
  os.fail(test::Call::mkdir, os.count(test::Call::mkdir), EACCES);
  EXPECT_TRUE(test::says(test::refusal(Fault::io, [&] { open(); }), "check the permissions"));
}

TEST_F(StoreTest, FallsBackFromADamagedCheckpointAndPutsItAside) {
  prepare({1, 2, 3});
  Files::system().update(at(3) / shard_name(0, 1)).truncate(1000);
  test::flip(at(2) / "MANIFEST.json", 100);
  Store store = open();
  EXPECT_EQ(store.newest().value().step(), 1);
  const auto left = names();
  ASSERT_EQ(left.size(), 3U);
  EXPECT_TRUE(left[0].starts_with(".bad-000000002-")) << left[0];
  EXPECT_TRUE(left[1].starts_with(".bad-000000003-")) << left[1];
  EXPECT_TRUE(try_save(store, 2).committed) << "the name is free again";
}

TEST_F(StoreTest, NeverStartsOverSilently) {
  prepare({1, 2});
  Files::system().update(at(1) / shard_name(0, 1)).truncate(1000);
  test::flip(at(2) / "MANIFEST.json", 100);
  const Store store = open();
  EXPECT_TRUE(test::says(test::refusal(Fault::corrupt, [&] { (void)store.newest(); }), "000000001", "000000002"));
  EXPECT_EQ(names().size(), 2U) << "nothing was touched";
}

TEST_F(StoreTest, RefusesCheckpointsOfAnotherRun) {
  prepare({1});
  Files::system().write_atomically(run / "run.json", "{\"run_uuid\":\"00000000000000000000000000000000\"}");
  {
    const Store store = open();
    EXPECT_TRUE(test::says(test::refusal(Fault::corrupt, [&] { (void)store.newest(); }), "another run"));
  }
  Files::system().remove(run / "run.json");
  const Store store = open();
  ASSERT_TRUE(store.newest()) << "without run.json the run is that of its checkpoints";
}

TEST_F(StoreTest, ADamagedRunFileIsOneClearError) {
  { const Store store = open(); }
  Files::system().write_atomically(run / "run.json", "{}");
  test::refusal(Fault::corrupt, [&] { open(); });
}

TEST_F(StoreTest, ACheckpointOfANewerFormatIsNoDamage) {
  prepare({1, 2});
  test::edit_manifest(at(2), [](auto& o) { o["format_version"] = {{"major", 9}, {"minor", 0}}; });
  const Store store = open();
  test::refusal(Fault::usage, [&] { static_cast<void>(store.newest()); });
  EXPECT_TRUE(Files::system().exists(at(2)));
}

}  // namespace
}  // namespace argosy::checkpoint
