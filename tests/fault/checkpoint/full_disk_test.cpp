#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "support/checkpoints.hpp"
#include "support/small_disk.hpp"

namespace argosy::checkpoint {
namespace {

/// Every way to run out of space: by the ballast, inside HDF5, in fallocate, in a payload write. HDF5 1.10 crashes at
/// exit when a file could not be closed; then this test program fails as a whole.
TEST(FullDisk, FailsTheSaveAndNothingElse) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting a small file system needs root";
  int committed = 0, failed = 0;
  for (std::uint64_t pages = 24; pages <= 1280; pages += pages < 420 ? 12 : 60) {
    const test::SmallDisk disk{pages * 4096};
    if (!disk.mounted()) GTEST_SKIP() << "this container may not mount a tmpfs";
    test::Optimist os;
    test::TestContext context{os, test::world()};
    Store store{context.get(), disk.path() / "run", {}};
    test::Toy toy{test::tiny_units(), context.topology().layout(), 0};
    std::int64_t newest = 0;
    for (std::int64_t step = 1; step <= 12; ++step) {
      const SaveReport report =
          store.save(checkpoint::Kind::temp, step, toy.fill(static_cast<std::uint64_t>(step)).states(),
                     test::toy_sections(), test::toy_attachments());
      (report.committed ? committed : failed) += 1;
      if (report.committed) newest = step;
      if (!report.committed) {
        EXPECT_NE(report.why_not.find("ENOSPC"), std::string::npos) << report.why_not;
      }
      const auto found = store.newest();
      EXPECT_EQ(found ? found->step() : 0, newest);
      if (found) found->verify();
    }
    for (const std::string& name : Files::system().list(disk.path() / "run/checkpoints"))
      EXPECT_NE(name[0], '.') << name;
  }
  EXPECT_GT(committed, 20);
  EXPECT_GT(failed, 20);
}

}  // namespace
}  // namespace argosy::checkpoint
