#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support/fault_options.hpp"
#include "support/own_process.hpp"
#include "support/refusal.hpp"
#include "support/saved_toys.hpp"
#include "support/small_disk.hpp"

namespace argosy::checkpoint {
namespace {

using testing::HasSubstr;

void expect_nothing_half_done(const Path& run) {
  for (const std::string& name : Files::system().list(run / "checkpoints")) EXPECT_NE(name[0], '.') << name;
}

/// Every way to run out of space: by the ballast, inside HDF5, in fallocate, in a payload write. HDF5 1.10 crashes at
/// exit when a file could not be closed; then this test program fails as a whole.
TEST(FullDisk, FailsTheSaveAndNothingElse) {
  if (!test::may_mount()) return;
  int committed = 0, failed = 0;
  for (std::uint64_t pages = 24; pages <= 1280; pages += pages < 420 ? 12 : 60) {
    const test::SmallDisk disk{pages * 4096};
    ASSERT_TRUE(disk.mounted());
    test::Optimist os;
    test::TestContext context{os, test::world()};
    Store store{context.get(), disk.path() / "run", {}};
    std::int64_t newest = 0;
    for (std::int64_t step = 1; step <= 12; ++step) {
      const SaveReport report = test::save_toy(store, test::own_toy(context), step);
      (report.committed ? committed : failed) += 1;
      if (report.committed) newest = step;
      if (!report.committed) {
        EXPECT_THAT(report.why_not, HasSubstr("ENOSPC"));
      }
      const auto found = store.newest();
      EXPECT_EQ(found ? found->step() : 0, newest);
      if (found) found->verify();
    }
    expect_nothing_half_done(disk.path() / "run");
  }
  EXPECT_GT(committed, 20);
  EXPECT_GT(failed, 20);
}

constexpr const char* disk_variable = "ARGOSY_TEST_FULL_DISK";

/// A run of its own: saves of 18 MB each to a disk that has room for two or three. Fails some, loses none, and its
/// process ends as any other.
TEST(FullDisk, DISABLED_RunOfItsOwn) {
  const char* const disk = std::getenv(disk_variable);
  ASSERT_NE(disk, nullptr);
  test::Optimist os;
  test::TestContext context{os, test::world()};
  Store store{context.get(), Path{disk} / "run", {}};
  test::Toy toy = test::own_toy(context, test::large_units()), got = toy;
  std::int64_t newest = 0, failed = 0;
  for (std::int64_t step = 1; step <= 6; ++step) {
    const SaveReport report = store.save(Kind::temp, step, toy.fill_all(static_cast<float>(step)).states(),
                                         test::toy_sections(), test::toy_attachments());
    if (report.committed) newest = step;
    failed += report.committed ? 0 : 1;
  }
  EXPECT_GT(newest, 1);
  EXPECT_GT(failed, 1);
  const auto found = store.newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step(), newest);
  found->read_state(got.states(), 0);
  EXPECT_EQ(got.tensor(2, 0)[0], static_cast<float>(newest));
  expect_nothing_half_done(Path{disk} / "run");
}

class DiskOfKind : public testing::TestWithParam<test::DiskKind> {};

/// ARGOSY_FAULT_SCALE multiplies the runs.
TEST_P(DiskOfKind, EndsARunInOrderWhenItIsFull) {
  if (!test::may_mount(GetParam())) return;
  const int runs = test::scaled(GetParam() == test::DiskKind::tmpfs ? 20 : 4);
  constexpr std::uint64_t smallest = 48 << 20, largest = 64 << 20;
  for (int run = 0; run < runs; ++run) {
    const test::SmallDisk disk{smallest + (largest - smallest) / 4096 * static_cast<std::uint64_t>(run) /
                                              static_cast<std::uint64_t>(runs) * 4096,
                               GetParam()};
    ASSERT_TRUE(disk.mounted());
    EXPECT_EQ(test::run_alone("FullDisk.DISABLED_RunOfItsOwn", {{disk_variable, disk.path().c_str()}}), 0)
        << "run " << run << " of " << runs;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DiskOfKind, testing::Values(test::DiskKind::tmpfs, test::DiskKind::ext4),
                         [](const auto& test) { return test.param == test::DiskKind::tmpfs ? "Tmpfs" : "Ext4"; });

/// One save before, one that has to fail while `forbid` holds, one after `allow`.
template <class Forbid, class Allow>
void expect_to_go_on(const Path& run, const std::string& error, Forbid forbid, Allow allow) {
  Os os;
  test::TestContext context{os, test::world()};
  Store store{context.get(), run, {}};
  const auto save = [&](std::int64_t step) { return test::save_toy(store, test::own_toy(context), step); };
  ASSERT_TRUE(save(1).committed);
  forbid();
  const SaveReport refused = save(2);
  const auto kept = store.newest();
  const int readable = static_cast<int>(Reader{context.get().files, run / "checkpoints/000000001"}.verify().finite);
  allow();
  EXPECT_FALSE(refused.committed);
  EXPECT_THAT(refused.why_not, AllOf(HasSubstr(error), HasSubstr("check the permissions")));
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->step(), 1);
  EXPECT_EQ(readable, 1);
  EXPECT_TRUE(save(3).committed);
}

/// A start that may not write: one sentence with the place, exit code 4.
void expect_refusal(const Path& run, const std::string& error) {
  Os os;
  test::TestContext context{os, test::world()};
  EXPECT_THAT(test::refusal(Fault::io, [&] { const Store store(context.get(), run, {}); }),
              AllOf(HasSubstr(error), HasSubstr(run.string())));
}

TEST(ReadOnlyDisk, FailsTheSaveAndRefusesTheStart) {
  if (!test::may_mount()) return;
  const test::SmallDisk disk{8 << 20};
  ASSERT_TRUE(disk.mounted());
  const Path run = disk.path() / "run";
  expect_to_go_on(
      run, "EROFS", [&] { ASSERT_TRUE(disk.set_read_only(true)); }, [&] { ASSERT_TRUE(disk.set_read_only(false)); });
  ASSERT_TRUE(disk.set_read_only(true));
  expect_refusal(run, "EROFS");
  expect_refusal(disk.path() / "new", "EROFS");
}

/// What is in a folder as somebody else's: root becomes another user, who owns nothing there; others give up their own
/// right to write.
void set_foreign(const Path& folder, bool foreign) {
  constexpr uid_t nobody = 65534;
  if (getuid() == 0) {
    ASSERT_EQ(seteuid(foreign ? nobody : 0), 0);
    return;
  }
  using std::filesystem::perms;
  const perms rights = perms::owner_read | perms::owner_exec | (foreign ? perms::none : perms::owner_write);
  std::filesystem::permissions(folder, rights);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_directory()) std::filesystem::permissions(entry, rights);
}

TEST(ForeignFolder, FailsTheSaveAndRefusesTheStart) {
  const test::TempFolder folder;
  expect_to_go_on(
      folder / "run", "EACCES", [&] { set_foreign(folder.path(), true); }, [&] { set_foreign(folder.path(), false); });
  set_foreign(folder.path(), true);
  expect_refusal(folder / "run", "EACCES");
  expect_refusal(folder / "new", "EACCES");
  set_foreign(folder.path(), false);
}

}  // namespace
}  // namespace argosy::checkpoint
