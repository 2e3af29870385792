#pragma once

#include <fmt/format.h>
#include <sys/mount.h>

#include <cstdint>

#include "core/file.hpp"
#include "support/temp_folder.hpp"

/// A disk that really fills, for tests of what that leaves behind.
namespace argosy::test {

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
  TempFolder folder_;
  bool mounted_;
};

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
