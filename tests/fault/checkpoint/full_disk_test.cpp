#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "support/checkpoints.hpp"
#include "support/temp_folder.hpp"

namespace argosy::checkpoint {
namespace {

/// A file system of a given size; needs root.
class SmallDisk {
 public:
  explicit SmallDisk(std::uint64_t size_bytes)
      : mounted_(mount("none", folder_.path().c_str(), "tmpfs", 0, fmt::format("size={}", size_bytes).c_str()) == 0) {}
  ~SmallDisk() {
    if (mounted_) umount(folder_.path().c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] const Path& path() const { return folder_.path(); }

 private:
  test::TempFolder folder_;
  bool mounted_;
};

/// Says that there is room, so that the disk fills in the middle of a save and not before it.
class Optimist : public Os {
 public:
  int statvfs(const char* path, struct statvfs* out) override {
    const int result = Os::statvfs(path, out);
    out->f_bavail = 1ULL << 40;
    return result;
  }
};

/// Every way to run out of space: by the ballast, inside HDF5, in fallocate, in a payload write. HDF5 1.10 crashes at
/// exit when a file could not be closed; then this test program fails as a whole.
TEST(FullDisk, FailsTheSaveAndNothingElse) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting a small file system needs root";
  int committed = 0, failed = 0;
  for (std::uint64_t pages = 24; pages <= 1280; pages += pages < 420 ? 12 : 60) {
    const SmallDisk disk{pages * 4096};
    if (!disk.mounted()) GTEST_SKIP() << "this container may not mount a tmpfs";
    Optimist os;
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
