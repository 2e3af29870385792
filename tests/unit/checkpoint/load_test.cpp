#include <algorithm>

#include "load_fixture.hpp"
#include "support/caught.hpp"

namespace argosy::checkpoint {
namespace {

TEST_F(LoadTest, FindsNothingInANewRun) {
  EXPECT_EQ(load(), 0);
  EXPECT_EQ(load(), 0) << "nor in one that ended before its first save";
}

TEST_F(LoadTest, TakesTheNewestAndPointsLatestAtIt) {
  prepare({1, 2, 3});
  Files::system().remove(run / "latest");
  EXPECT_EQ(load(), 3);
  EXPECT_EQ(std::filesystem::read_symlink(run / "latest"), "checkpoints/000000003");
}

TEST_F(LoadTest, FallsBackFromAFlippedBitInThePayload) {
  prepare({1, 2, 3});
  flip_payload(at(3));
  const std::size_t begin = os.count();
  EXPECT_EQ(load(), 2);
  EXPECT_EQ(names(), (Names{".bad-000000003-content", "000000001", "000000002"}));
  const auto records = os.records_from(begin);
  const auto moved =
      std::ranges::find_if(records, [](const auto& r) { return r.to.ends_with(".bad-000000003-content"); });
  ASSERT_NE(moved, records.end());
  const auto next = std::find_if(moved, records.end(), [](const auto& r) { return r.call == test::Call::fsync; });
  ASSERT_NE(next, records.end());
  EXPECT_EQ(next->path, (run / "checkpoints").string()) << "the parent is synced";
  EXPECT_EQ(load(), 2) << "again, and nothing more is moved";
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(LoadTest, FallsBackFromWrongSizesMissingFilesAndManifests) {
  prepare({1, 2, 3, 4, 5});
  Files::system().update(at(5) / shard_name(0, 1)).truncate(1000);
  Files::system().remove(at(4) / shard_name(0, 1));
  Files::system().remove(at(3) / "MANIFEST.json");
  test::flip(at(2) / "MANIFEST.json", 100);
  EXPECT_EQ(load(), 1);
  EXPECT_EQ(names(), (Names{".bad-000000004-files", ".bad-000000005-files", "000000001"})) << "the newest two are kept";
}

TEST_F(LoadTest, KeepsTheNewestTwoThatWerePutAside) {
  prepare({1, 2, 3, 4});
  for (const std::int64_t step : {4, 3, 2}) {
    flip_payload(at(step));
    EXPECT_EQ(load(), step - 1);
  }
  EXPECT_EQ(names(), (Names{".bad-000000003-content", ".bad-000000004-content", "000000001"}));
}

TEST_F(LoadTest, ARemovalOfOneThatWasPutAsideIsEndedByTheNextStart) {
  prepare({1, 2});
  for (const char* name : {".bad-000000003-content", ".bad-000000004-files-2"})
    Files::system().make_folders(run / "checkpoints" / name / "deep");
  flip_payload(at(2));
  class KilledInRemoval : public Os {
   public:
    int unlink(const char* path) override {
      if (std::string_view{path}.find(".del-") == std::string_view::npos) return Os::unlink(path);
      errno = EIO;
      return -1;
    }
  } killed;
  test::TestContext in_killed{killed, test::world()};
  {
    Store store{in_killed.get(), run, {}};
    EXPECT_EQ(load(store), 1);
  }
  const auto removals = [&] {
    return std::ranges::count_if(names(), [](const std::string& name) { return name.starts_with(".del-"); });
  };
  EXPECT_EQ(removals(), 1);
  EXPECT_EQ(load(), 1);
  EXPECT_EQ(removals(), 0);
}

TEST_F(LoadTest, PutsASecondOneOfAStepAsideUnderAnotherName) {
  prepare({1, 2});
  Files::system().make_folders(run / "checkpoints/.bad-000000002-content");
  flip_payload(at(2));
  EXPECT_EQ(load(), 1);
  EXPECT_EQ(names(), (Names{".bad-000000002-content", ".bad-000000002-content-2", "000000001"}));
}

TEST_F(LoadTest, ReadsEverythingBehindADamagedOne) {
  prepare({1, 2, 3});
  test::flip(at(3) / "tokenizer.model", 2);
  EXPECT_EQ(load(), 3) << "no block of it is read";
  EXPECT_EQ(load({.verify = Verify::full}), 2);
  test::flip(at(1) / "tokenizer.model", 2);
  flip_payload(at(2));
  refusal(Fault::corrupt);
}

TEST_F(LoadTest, HashesNoBlockWhenToldSo) {
  prepare({1, 2});
  flip_payload(at(2));
  Store store = open();
  test::Toy got = toy();
  EXPECT_EQ(store.load(got.states(), {.verify = Verify::none})->step(), 2);
  EXPECT_FALSE(got == toy().fill(2));
}

TEST_F(LoadTest, PassesOverWhatCannotBeReadWithoutMovingIt) {
  prepare({1, 2});
  class Broken : public Os {  // a disk that gives an error for one checkpoint
   public:
    std::int64_t pread(int fd, void* to, std::size_t size_bytes, std::int64_t offset) override {
      const bool shard =
          std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd)).string().find("000000002/shard") !=
          std::string::npos;
      errno = EIO;
      return shard ? -1 : Os::pread(fd, to, size_bytes, offset);
    }
  } broken;
  test::TestContext here{broken, test::world()};
  Store store{here.get(), run, {}};
  EXPECT_EQ(load(store), 1);
  EXPECT_EQ(names(), (Names{"000000001", "000000002"}));
}

TEST_F(LoadTest, TellsWhatCannotBeOpenedFromDamage) {
  prepare({1, 2});
  const std::size_t opened = os.count(test::Call::open);
  EXPECT_EQ(load(), 2);
  // Every open of a load in turn: nothing is ever taken for damage.
  const std::size_t opens = os.count(test::Call::open) - opened;
  for (std::size_t n = 0; n < opens; ++n) {
    os.fail(test::Call::open, os.count(test::Call::open) + n, EACCES);
    const auto error = test::caught([&] { load(); });
    EXPECT_TRUE(!error || error->fault() == Fault::io) << "open " << n << ": " << error->what();
    ASSERT_EQ(names(), (Names{"000000001", "000000002"})) << "open " << n;
    for (const std::string& name : Files::system().list(run))  // of a start that failed, whose process lives on here
      if (name.starts_with("run.lock.")) Files::system().remove(run / name);
  }
}

TEST_F(LoadTest, GoesOnWhenADamagedOneCannotBeMoved) {
  prepare({1, 2});
  flip_payload(at(2));
  os.fail(test::Call::rename_noreplace, os.count(test::Call::rename_noreplace) + 1, EROFS);  // behind the lease's
  EXPECT_EQ(load(), 1);
  EXPECT_EQ(names(), (Names{"000000001", "000000002"}));
}

TEST_F(LoadTest, PassesOverWhatIsNotFinite) {
  prepare({1});
  save_alone(2, Kind::temp, true, false);
  EXPECT_EQ(load(), 1);
  EXPECT_EQ(names(), (Names{"000000001", "000000002"}));
}

TEST_F(LoadTest, WhatWasPassedOverMakesRoomForTheNextOneOfItsStep) {
  Store store = open();
  save(store, 1);
  save(store, 2, Kind::temp, true, false);
  save(store, 3, Kind::temp, true, false);
  EXPECT_EQ(load(store), 1);
  save(store, 2);
  EXPECT_EQ(names(), (Names{".bad-000000002-unfit", "000000001", "000000002", "000000003"}));
  EXPECT_EQ(load(store), 2);
}

TEST_F(LoadTest, PassesOverWeightsOnlyAndReadsNoMoreForIt) {
  prepare({1});
  save_alone(2, Kind::export_, false);
  test::flip(at(1) / "tokenizer.model", 2);
  EXPECT_EQ(load(), 1) << "it is no damage: blocks that are not needed are not read";
  std::filesystem::remove_all(at(1));
  EXPECT_TRUE(test::says(refusal(Fault::corrupt), "weights only")) << "never over again from nothing";
}

TEST_F(LoadTest, PassesOverAnotherRunAndAnotherStepUnderThisName) {
  prepare({1, 2});
  std::filesystem::copy(at(1), at(7), std::filesystem::copy_options::recursive);
  test::write_checkpoint(Files::system(), at(5), test::tiny_units(), partition::Layout{{1}}, 5);
  EXPECT_EQ(load(), 2);
  EXPECT_EQ(names(), (Names{"000000001", "000000002", "000000005", "000000007"})) << "neither is damaged";
}

TEST_F(LoadTest, FollowsNoSymbolicLink) {
  prepare({1, 2, 3, 4});
  std::filesystem::rename(at(4), folder / "elsewhere");
  std::filesystem::create_directory_symlink(folder / "elsewhere", at(4));
  std::filesystem::rename(at(3) / shard_name(0, 1), folder / "shard");
  std::filesystem::create_symlink(folder / "shard", at(3) / shard_name(0, 1));
  std::filesystem::create_directory_symlink(folder / "gone", at(5));
  EXPECT_EQ(load(), 2);
  EXPECT_EQ(names(), (Names{"000000001", "000000002", "000000003", "000000004", "000000005"})) << "none is damaged";
  Store store = open(1);
  EXPECT_EQ(load(store), 2);
  EXPECT_EQ(names(), (Names{"000000002", "000000003", "000000004", "000000005"})) << "neither counted nor removed";
  EXPECT_TRUE(Files::system().exists(folder / "elsewhere" / "MANIFEST.json"));
  std::filesystem::remove_all(at(2));
  EXPECT_TRUE(test::says(test::refusal(Fault::corrupt, [&] { load(store); }), "symbolic link"));
}

TEST_F(LoadTest, RemovesNothingBehindALink) {
  prepare({1, 2});
  Files::system().make_folders(folder / "elsewhere");
  Files::system().write_atomically(folder / "elsewhere/precious", "x");
  std::filesystem::create_directory_symlink(folder / "elsewhere", run / "checkpoints/.del-000000009-01234567");
  std::filesystem::create_directory_symlink(folder / "elsewhere", at(1) / "link");
  {
    Store store = open(1);
    EXPECT_EQ(load(store), 2);
  }
  EXPECT_EQ(names(), (Names{"000000002"}));
  EXPECT_TRUE(Files::system().exists(folder / "elsewhere/precious"));
}

TEST_F(LoadTest, ANewerFormatEndsTheLoad) {
  prepare({1, 2, 3});
  flip_payload(at(3));
  test::edit_manifest(at(2), [](auto& o) { o["format_version"] = {{"major", 9}, {"minor", 0}}; });
  EXPECT_EQ(exit_code(test::error_of([&] { load(); }).fault()), Exit::usage);
  EXPECT_EQ(names(), (Names{"000000001", "000000002", "000000003"}));
}

TEST_F(LoadTest, ARefusalByTheCallerEndsTheLoad) {
  prepare({1, 2});
  int asked = 0;
  const LoadOptions options{.check = [&](const Reader& reader) {
    ++asked;
    EXPECT_EQ(reader.step(), 2);
    throw Error{Fault::config, {.got = "another model"}};
  }};
  EXPECT_TRUE(test::says(refusal(Fault::config, options), "another model"));
  EXPECT_EQ(asked, 1) << "and no older one is tried";
  EXPECT_EQ(names(), (Names{"000000001", "000000002"}));
}

TEST_F(LoadTest, OtherShapesAreNoDamage) {
  prepare({1, 2});
  test::Units units = test::tiny_units();
  units[1].second[1].shape = {53, 19};
  test::Toy other{units, context.topology().layout(), 0};
  Store store = open();
  test::refusal(Fault::data, [&] { store.load(other.states()); });
  EXPECT_EQ(names(), (Names{"000000001", "000000002"}));
}

TEST_F(LoadTest, NeverStartsOverSilently) {
  prepare({1, 2});
  flip_payload(at(1));
  test::flip(at(2) / "MANIFEST.json", 100);
  EXPECT_TRUE(test::says(refusal(Fault::corrupt), "(2) ", "000000001", "000000002", "unit/embedding/exp_avg",
                         "--from-scratch"));
  EXPECT_EQ(names(), (Names{"000000001", "000000002"})) << "nothing was touched";
  for (const std::int64_t step : {1, 2}) std::filesystem::remove_all(at(step));
  Files::system().make_folders(run / "checkpoints/.bad-000000002-content");
  EXPECT_TRUE(test::says(refusal(Fault::corrupt), ".bad-000000002-content"));
}

TEST_F(LoadTest, TakesTheNamedOneOrNone) {
  prepare({1, 2});
  EXPECT_EQ(load({.from = at(2)}), 2);
  flip_payload(at(2));
  EXPECT_TRUE(test::says(refusal(Fault::corrupt, {.from = at(2)}), "000000002"));
  EXPECT_EQ(names(), (Names{"000000001", "000000002"})) << "it stays where the user has named it";
  EXPECT_EQ(exit_code(test::error_of([&] { load({.from = at(9)}); }).fault()), Exit{4});
}

TEST_F(LoadTest, TakesWhatIsNotFiniteWhenNamed) {
  Store store = open();
  save(store, 1);
  save(store, 2, Kind::temp, true, false);
  test::Toy got = toy();
  EXPECT_EQ(store.load(got.states(), {.from = at(2)})->step(), 2);
}

TEST_F(LoadTest, RefusesToLeaveNewerOnesBehind) {
  prepare({1, 2, 3});
  save_alone(4, Kind::export_, false);
  EXPECT_TRUE(test::says(refusal(Fault::usage, {.from = at(1)}), "000000001 is not the newest", "checkpoints/000000002",
                         "checkpoints/000000003", "export/000000004", "--abandon-newer"));
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(LoadTest, AbandonsNewerOnesWhenTold) {
  prepare({1, 2, 3});
  Files::system().update(at(3) / shard_name(0, 1)).truncate(1000);
  {
    Store store = open();
    save(store, 4, Kind::export_);
    EXPECT_EQ(load(store, {.from = at(1), .abandon_newer = true}), 1);
    const auto left = names();
    ASSERT_EQ(left.size(), 3U);
    EXPECT_EQ(left[0], ".bad-000000003-files") << "what is damaged is no step to come back to";
    EXPECT_TRUE(left[1].starts_with(".old-000000002-")) << left[1];
    EXPECT_EQ(left[2], "000000001");
    EXPECT_TRUE(names("export")[0].starts_with(".old-000000004-"));
    save(store, 2);
  }
  EXPECT_EQ(load(), 2) << "the run goes on from there";
}

TEST_F(LoadTest, ADamagedNamedOneLeavesNewerOnesAlone) {
  prepare({1, 2});
  flip_payload(at(1));
  refusal(Fault::corrupt, {.from = at(1), .abandon_newer = true});
  EXPECT_EQ(names(), (Names{"000000001", "000000002"}));
}

TEST_F(LoadTest, TakesTheNamedOneOfAnotherRun) {
  prepare({1, 2});
  const Path mine = run;
  run = folder / "other";
  EXPECT_EQ(load({.from = folder / "run/checkpoints/000000001"}), 1);
  EXPECT_TRUE(names().empty());
}

TEST_F(LoadTest, RemovesWhatNeedNotBeKeptAfterALoad) {
  prepare({1, 2, 3, 4, 5});
  Store store = open(2);
  EXPECT_EQ(load(store), 5);
  EXPECT_EQ(names(), (Names{"000000004", "000000005"}));
}

}  // namespace
}  // namespace argosy::checkpoint
