#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/file.hpp"
#include "support/own_process.hpp"
#include "support/temp_folder.hpp"

/// A disk that really fills, for tests of what that leaves behind.
namespace argosy::test {

enum class DiskKind {
  tmpfs,
  ext4  // in a file, by a loop device
};

/// A file system of a given size; where may_mount() said so.
class SmallDisk {
 public:
  explicit SmallDisk(std::uint64_t size_bytes, DiskKind kind = DiskKind::tmpfs) {
    const Path image = folder_ / "image", at = path();
    Files::system().make_folder(at);
    if (kind == DiskKind::tmpfs) {
      mounted_ = mount("none", at.c_str(), "tmpfs", 0, fmt::format("size={}", size_bytes).c_str()) == 0;
      return;
    }
    File file = Files::system().create(image);
    file.truncate(size_bytes);
    file.close();
    const std::string command = fmt::format(
        "{{ mkfs.ext4 -q -F -m 0 '{0}' && mount -o loop '{0}' '{1}'; }} 2>/dev/null", image.string(), at.string());
    mounted_ = std::system(command.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount(path().c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] Path path() const { return folder_ / "disk"; }
  /// Gives a tmpfs another size.
  [[nodiscard]] bool resize(std::uint64_t size_bytes) const {
    return mount("none", path().c_str(), "tmpfs", MS_REMOUNT, fmt::format("size={}", size_bytes).c_str()) == 0;
  }
  /// Whether nothing can be written from here on.
  [[nodiscard]] bool set_read_only(bool read_only) const {
    const auto flags = static_cast<unsigned long>(read_only ? MS_REMOUNT | MS_RDONLY : MS_REMOUNT);
    return mount(nullptr, path().c_str(), nullptr, flags, nullptr) == 0;
  }

 private:
  TempFolder folder_;
  bool mounted_ = false;
};

/// Whether this test goes on here. Where this process may not mount, the test runs again in a user name space of its
/// own, in which it may, and fails here if it fails there; where the machine gives none, it is skipped. So:
///   if (!test::may_mount()) return;
inline bool may_mount(DiskKind kind = DiskKind::tmpfs) {
  if (SmallDisk{1 << 20, kind}.mounted()) return true;
  const std::string here = "unshare --user --map-root-user --mount ";
  const TempFolder folder;
  const std::string at = folder.path().string();
  const std::string probe =
      kind == DiskKind::tmpfs
          ? fmt::format("mount -t tmpfs none '{}'", at)
          : fmt::format(
                "truncate -s 1M '{0}/image' && mkfs.ext4 -q '{0}/image' && mkdir '{0}/at' && mount -o loop "
                "'{0}/image' '{0}/at'",
                at);
  if (std::system(fmt::format("{} sh -c \"{}\" 2>/dev/null", here, probe).c_str()) != 0) {
    const auto skip = [&] {
      GTEST_SKIP() << "this machine lets neither this user nor a user name space mount "
                   << (kind == DiskKind::tmpfs ? "a tmpfs" : "an ext4 in a file");
    };
    skip();
    return false;
  }
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = fmt::format("{}.{}", test.test_suite_name(), test.name()), output = at + "/output";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  EXPECT_EQ(run_program({"unshare", "--user", "--map-root-user", "--mount", program}, name.c_str(), {}, output.c_str()),
            0)
      << Files::system().read_text(output);
  return false;
}

/// Says that there is room, so that the disk fills in the middle of what is written and not before it.
class Optimist : public Os {
 public:
  int statvfs(const char* path, struct statvfs* out) override {
    const int result = Os::statvfs(path, out);
    out->f_bavail = 1ULL << 40;
    return result;
  }
};

}  // namespace argosy::test
