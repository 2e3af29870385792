#include <gmock/gmock.h>

#include <set>

#include "soup/soup.hpp"
#include "support/caught.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/refusal.hpp"
#include "support/small_disk.hpp"
#include "support/temp_folder.hpp"

namespace argosy::soup {
namespace {

/// Acts once, before the n-th read.
class ChangingOs : public Os {
 public:
  ChangingOs(std::size_t n, std::function<void()> change) : n_(n), change_(std::move(change)) {}
  std::int64_t pread(int fd, void* to, std::size_t size_bytes, std::int64_t offset) override {
    if (reads_++ == n_) change_();
    return Os::pread(fd, to, size_bytes, offset);
  }
  [[nodiscard]] std::size_t reads() const { return reads_; }

 private:
  std::size_t n_, reads_ = 0;
  std::function<void()> change_;
};

class SoupFaults : public testing::Test {
 protected:
  SoupFaults() {
    for (const int step : {1, 2}) save(step, static_cast<std::uint64_t>(step));
    SoupConfig undisturbed = config;
    undisturbed.output = (folder / "undisturbed").string();
    test::TestContext context{os, test::world()};
    static_cast<void>(make_soup(context.get(), undisturbed));
  }
  void save(int step, std::uint64_t seed) {
    test::TestContext context{os, test::world()};
    test::Toy toy{test::tiny_units(), context.topology().layout(), 0};
    config.inputs.push_back(test::save_step(context, folder / "run", step, toy.fill(seed).states()).string());
    config.output = (folder / "soup").string();
  }
  /// Makes the soup through a door to the OS and looks at what is left: nothing, or the undisturbed soup. True: made.
  bool make_or_leave_nothing(Os& door, const std::string& what) {
    const auto error = test::caught([&] {
      test::TestContext context{door, test::world()};
      static_cast<void>(make_soup(context.get(), config));
    });
    EXPECT_TRUE(!error || error->fault() != Fault::internal) << what << ": " << error->what();
    const bool made = !error;
    bool committed = false;
    for (const std::string& name : Files::system().list(folder.path())) {
      EXPECT_FALSE(name.starts_with(".")) << what << " leaves " << name;
      committed = committed || name == "soup";
    }
    EXPECT_TRUE(committed || !made) << what;
    if (committed) {
      const checkpoint::Reader soup{Files::system(), folder / "soup"};
      soup.verify();
      const std::string shard = checkpoint::shard_name(0, 1);
      EXPECT_TRUE(Files::system().read_text(folder / "soup" / shard) ==
                  Files::system().read_text(folder / "undisturbed" / shard))
          << what;
      Files::system().remove_tree(folder / "soup");
    }
    return made;
  }

  /// Makes the soup as often as it makes such calls, and lets each of them fail. Their number.
  std::size_t fail_each(test::Call call, int error) {
    for (std::size_t n = 0;; ++n) {
      test::FaultyOs door;
      door.fail(call, n, error);
      make_or_leave_nothing(door, fmt::format("call {} of kind {}", n, static_cast<int>(call)));
      EXPECT_EQ(door.open_files(), 0U);
      if (door.count(call) <= n) return n;  // there is no n-th one
    }
  }

  Os os;
  test::TempFolder folder;
  SoupConfig config;
};

TEST_F(SoupFaults, EveryByteIsSyncedBeforeTheCommit) {
  test::FaultyOs door;
  EXPECT_TRUE(make_or_leave_nothing(door, "no fault"));
  std::set<std::string> dirty, lost;  // written since they were synced; closed or committed like this, and still there
  int commits = 0;
  for (const auto& record : door.records()) {
    if (record.call == test::Call::pwrite) dirty.insert(record.path);
    if (record.call == test::Call::fsync) dirty.erase(record.path);
    if (record.call == test::Call::close && dirty.erase(record.path) > 0) lost.insert(record.path);
    if (record.call == test::Call::unlink) lost.erase(record.path);
    if (record.call != test::Call::rename_noreplace) continue;
    lost.insert(dirty.begin(), dirty.end());
    ++commits;
  }
  EXPECT_EQ(commits, 1);
  EXPECT_THAT(lost, testing::IsEmpty());
}

TEST_F(SoupFaults, ReplacesNoOutputThatAppearsMeanwhile) {
  const Path soup = folder / "soup", mine = soup / "mine";
  for (const std::size_t read : {0U, 20U}) {
    ChangingOs door{read, [&] { Files::system().make_folders(mine); }};
    test::TestContext context{door, test::world()};
    test::refusal(Fault::usage, [&] { make_soup(context.get(), config); });
    EXPECT_EQ(Files::system().list(soup), std::vector<std::string>{"mine"});
    EXPECT_EQ(Files::system().list(folder.path()), (std::vector<std::string>{"run", "soup", "undisturbed"}));
    Files::system().remove_tree(soup);
  }
}

TEST_F(SoupFaults, AFullDiskAtAnyWriteLeavesNothing) {
  const test::Call writes[] = {test::Call::pwrite, test::Call::fallocate,        test::Call::fsync,  test::Call::mkdir,
                               test::Call::rename, test::Call::rename_noreplace, test::Call::statvfs};
  for (const test::Call call : writes)
    EXPECT_GT(fail_each(call, ENOSPC), 0U) << "no call of kind " << static_cast<int>(call);
}

TEST_F(SoupFaults, ADiskThatReallyFillsLeavesNothing) {
  if (!test::may_mount()) return;
  int made = 0, failed = 0;
  for (std::uint64_t pages = 8; pages <= 320; pages += 8) {
    const test::SmallDisk disk{pages * 4096};
    ASSERT_TRUE(disk.mounted());
    test::Optimist optimist;
    config.output = (disk.path() / "soup").string();
    try {
      test::TestContext context{optimist, test::world()};
      static_cast<void>(make_soup(context.get(), config));
      checkpoint::Reader(Files::system(), config.output).verify();
      ++made;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::io) << error.what();
      EXPECT_TRUE(Files::system().list(disk.path()).empty()) << pages << " pages: " << error.what();
      ++failed;
    }
  }
  EXPECT_GT(made, 0);
  EXPECT_GT(failed, 5);
}

TEST_F(SoupFaults, AnErrorAtAnyReadLeavesNothing) {
  for (const test::Call call : {test::Call::open, test::Call::pread, test::Call::stat, test::Call::fstat})
    fail_each(call, EIO);
}

TEST_F(SoupFaults, ShortTransfersChangeNothing) {
  test::FaultyOs count;
  EXPECT_TRUE(make_or_leave_nothing(count, "no fault"));
  for (std::size_t n = 0; n < count.count(); ++n) {
    test::FaultyOs door;
    door.shorten(n);
    EXPECT_TRUE(make_or_leave_nothing(door, fmt::format("call {} is short", n)));
  }
}

TEST_F(SoupFaults, AnInputThatChangesWhileItIsReadIsRefusedOrUnharmed) {
  const Path input = config.inputs[1], away = folder / "away", shard = input / checkpoint::shard_name(0, 1);
  const std::string content = Files::system().read_text(shard);
  const float weight = test::element("head/weight", 0, 4000, 2);
  const std::size_t at = content.find(std::string(reinterpret_cast<const char*>(&weight), sizeof(weight)));
  ASSERT_NE(at, std::string::npos);
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"flipped", [&] { test::flip(shard, at, 5); }},
      {"cut", [&] { Files::system().update(shard).truncate(1000); }},
      {"renamed", [&] { Files::system().rename(input, away); }},
      {"another save",
       [&] { Files::system().replace(shard).write_at(as_bytes(std::string(content.size(), 'x')), 0); }}};
  std::size_t refused = 0, made = 0;
  for (const auto& [what, change] : changes) {
    for (std::size_t n = 0;; ++n) {
      ChangingOs door{n, change};
      (make_or_leave_nothing(door, fmt::format("{} before read {}", what, n)) ? made : refused) += 1;
      if (Files::system().exists(away)) Files::system().rename(away, input);
      File restore = Files::system().replace(shard);
      restore.write_at(as_bytes(content), 0);
      restore.close();
      if (door.reads() <= n) break;
    }
  }
  EXPECT_GT(refused, 20U);
  EXPECT_GT(made, 4U) << "what changes after it was read harms nobody";
}

TEST_F(SoupFaults, HostileSizesAreRefusedBeforeAnythingIsAllocated) {
  const auto refused = [&](const std::function<void(boost::json::object&)>& change) {
    const std::string manifest = Files::system().read_text(Path{config.inputs[1]} / checkpoint::manifest_name);
    test::edit_manifest(config.inputs[1], change);
    Os door;
    EXPECT_FALSE(make_or_leave_nothing(door, "hostile"));
    Files::system().write_atomically(Path{config.inputs[1]} / checkpoint::manifest_name, manifest);
  };
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  const auto first = [](auto& o, const char* list) -> auto& { return o[list].as_array()[0].as_object(); };
  refused([&](auto& o) { first(o, "params")["shape"] = boost::json::array{huge, huge}; });
  refused([&](auto& o) { first(o, "params")["shape"] = boost::json::array{std::int64_t{1} << 47, 1}; });
  refused([&](auto& o) { first(o, "units")["slices"] = huge; });
  refused([&](auto& o) { first(o, "shards")["bytes"] = huge; });
  refused([&](auto& o) { first(o, "files")["bytes"] = huge; });
  refused([&](auto& o) { o["parallel"].as_object()["world"] = huge; });
  refused([&](auto& o) { o["parallel"].as_object()["nodes"] = boost::json::array{1 << 20}; });
  Os door;
  EXPECT_TRUE(make_or_leave_nothing(door, "whole again"));
}

}  // namespace
}  // namespace argosy::soup
