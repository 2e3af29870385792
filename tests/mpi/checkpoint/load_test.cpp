#include "checkpoint/load.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/shard_file.hpp"
#include "support/on_root.hpp"
#include "support/refusal.hpp"
#include "support/saved_toys.hpp"
#include "support/shared_folder.hpp"

namespace argosy::checkpoint {
namespace {

using test::on_root;
using testing::HasSubstr;
using Names = std::vector<std::string>;

/// A door behind which the shards of one step are as a test wants them to be.
class ShardOs : public Os {
 public:
  int open(const char* path, int flags, unsigned mode) override {
    const bool shard = std::string_view{path}.find(part) != std::string_view::npos && (flags & O_ACCMODE) == O_RDONLY;
    if (!shard || (hidden == 0 && !broken)) return Os::open(path, flags, mode);
    if (hidden > 0) --hidden;
    errno = broken ? EIO : ENOENT;
    return -1;
  }
  std::string part = "000000003/shard";
  int hidden = 0;  // so many opens find nothing
  bool broken = false;
};

class LoadOnRanks : public testing::Test {
 protected:
  LoadOnRanks() {
    Store store{context.get(), folder / "run", {}};
    for (std::int64_t step = 1; step <= 3; ++step) {
      const SaveReport report = test::save_toy(store, own(), step);
      EXPECT_TRUE(report.committed) << report.why_not;
    }
  }
  test::Toy own() { return test::own_toy(context); }
  Path at(std::int64_t step) { return folder / "run/checkpoints" / fmt::format("{:09}", step); }
  [[nodiscard]] Path latest() const { return folder / "run/latest"; }
  void point_latest_at_the_newest() {
    on_root([&] {
      Files::system().remove(latest());
      Files::system().link_symbolically("checkpoints/000000003", latest());
    });
  }
  /// Step that all ranks load, with its very bytes.
  std::int64_t load(const LoadOptions& options = {}) {
    Store store{context.get(), folder / "run", {}};
    test::Toy got = own();
    const auto reader = store.load(got.fill_all(99).states(), options);
    EXPECT_TRUE(reader);
    if (!reader) return 0;
    EXPECT_TRUE(got == own().fill(static_cast<std::uint64_t>(reader->step())));
    test::world().barrier("loaded");
    return reader->step();
  }
  /// A bit of a rank's slices of the largest unit.
  static void flip_payload(const Path& directory, int rank) {
    const ShardMap map = test::map_of(directory, rank);
    const auto found = std::find_if(map.datasets.begin(), map.datasets.end(),
                                    [](const auto& dataset) { return dataset.spec.name == "unit/head/master"; });
    test::flip(directory / shard_name(rank, test::world().size()), found->offset + 8);
  }

  ShardOs os;
  test::SharedFolder folder;
  test::TestContext context{os, test::world(), test::Hierarchy::uneven};
};

TEST_F(LoadOnRanks, ABitFlippedInTheShardOfAnyRankMakesAllFallBack) {
  for (int rank = 0; rank < test::world().size(); ++rank) {
    on_root([&] { flip_payload(at(3), rank); });
    EXPECT_EQ(load(), 2);
    EXPECT_EQ(folder.names("run/checkpoints"), (Names{".bad-000000003-content", "000000001", "000000002"}));
    on_root([&] {
      std::filesystem::rename(folder / "run/checkpoints/.bad-000000003-content", at(3));
      flip_payload(at(3), rank);
    });
  }
}

TEST_F(LoadOnRanks, WhatOneRankCannotReadIsPassedOverByAllAndStays) {
  os.broken = test::world().rank() == test::world().size() - 1;
  if (test::world().size() == 1) os.part = "000000003/shard-00000-of-00001.h5";
  EXPECT_EQ(load(), 2);
  EXPECT_EQ(folder.names("run/checkpoints"), (Names{"000000001", "000000002", "000000003"}));
}

TEST_F(LoadOnRanks, AFileThatOneRankSeesLateIsWaitedFor) {
  if (test::world().rank() > 0 && test::world().rank() == test::world().size() - 1) os.hidden = 5;  // 0 chose it
  EXPECT_EQ(load(), 3);
  EXPECT_EQ(folder.names("run/checkpoints"), (Names{"000000001", "000000002", "000000003"}));
}

TEST_F(LoadOnRanks, ARefusalOfOneRankIsTheRefusalOfAll) {
  const LoadOptions options{.check = [&](const Reader&) {
    if (test::world().rank() == test::world().size() - 1) throw Error{Fault::config, {.got = "another model"}};
  }};
  Store store{context.get(), folder / "run", {}};
  EXPECT_THAT(test::refusal(Fault::config, [&] { store.load({}, options); }), HasSubstr("another model"));
}

TEST_F(LoadOnRanks, EachRankReadsItsShareBehindADamagedOne) {
  on_root([&] {
    test::flip(at(3) / "MANIFEST.json", 90);
    test::flip(at(2) / "tokenizer.model", 3);
  });
  EXPECT_EQ(load(), 1);
}

TEST_F(LoadOnRanks, TheNamedOneIsReadByAllOrByNone) {
  EXPECT_EQ(load({.from = at(3)}), 3);
  EXPECT_THAT(test::refusal(Fault::usage, [&] { load({.from = at(1)}); }), HasSubstr("000000002"));
  on_root([&] { flip_payload(at(3), test::world().size() - 1); });
  test::refusal(Fault::corrupt, [&] { load({.from = at(3)}); });
  EXPECT_EQ(folder.names("run/checkpoints"), (Names{"000000001", "000000002", "000000003"}));
  EXPECT_EQ(load({.from = at(1), .abandon_newer = true}), 1);
  EXPECT_EQ(load(), 1);
}

/// A door behind which `latest` moves on once a manifest has been opened.
class MovingOs : public Os {
 public:
  explicit MovingOs(Path run) : run_(std::move(run)) {}
  int open(const char* path, int flags, unsigned mode) override {
    const int fd = Os::open(path, flags, mode);
    if (fd < 0 || moved_ || std::string_view{path}.find("MANIFEST.json") == std::string_view::npos) return fd;
    moved_ = true;
    Os::symlink("checkpoints/000000002", (run_ / "next").c_str());
    Os::rename((run_ / "next").c_str(), (run_ / "latest").c_str());
    return fd;
  }

 private:
  Path run_;
  bool moved_ = false;
};

TEST_F(LoadOnRanks, ALinkThatMovesLeadsAllToOneCheckpoint) {
  MovingOs moving{folder / "run"};
  test::TestContext moved{moving, test::world()};
  for (const char* const name : {"run/latest", "run/latest/"}) {
    point_latest_at_the_newest();
    moving = MovingOs{folder / "run"};
    const Reader reader = open_on_all(moved.get(), folder / name);
    test::world().barrier("opened");
    EXPECT_EQ(std::filesystem::read_symlink(latest()), "checkpoints/000000002") << "it has moved";
    EXPECT_EQ(reader.step(), 3);
    EXPECT_EQ(reader.directory(), at(3));
    for (const std::string& digest : test::world().all_gather(reader.self_digest()))
      EXPECT_EQ(digest, reader.self_digest());
    EXPECT_NO_THROW(reader.verify());
    test::world().barrier("read");
  }
}

TEST_F(LoadOnRanks, ANamedLinkThatMovesLeadsAllToOneCheckpoint) {
  MovingOs moving{folder / "run"};
  test::TestContext moved{moving, test::world()};
  point_latest_at_the_newest();
  Store store{moved.get(), folder / "run", {}};
  test::Toy got = own();
  EXPECT_EQ(store.load(got.fill_all(99).states(), {.from = latest()}).value().step(), 3);
  EXPECT_TRUE(got == own().fill(3));
}

TEST_F(LoadOnRanks, WhatIsNoCheckpointIsRefusedOnAllRanks) {
  EXPECT_THAT(test::refusal(Fault::data, [&] { (void)open_on_all(context.get(), folder / "run"); }),
              HasSubstr("a committed checkpoint"));
}

}  // namespace
}  // namespace argosy::checkpoint
