#pragma once

#include <fmt/format.h>
#include <sys/mount.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/file.hpp"
#include "support/temp_folder.hpp"

/// A disk that really fills, for tests of what that leaves behind.
namespace argosy::test {

enum class DiskKind {
  tmpfs,
  ext4  // in a file, by a loop device
};

/// A file system of a given size; needs root.
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
  /// Whether nothing can be written from here on.
  [[nodiscard]] bool set_read_only(bool read_only) const {
    const auto flags = static_cast<unsigned long>(read_only ? MS_REMOUNT | MS_RDONLY : MS_REMOUNT);
    return mount(nullptr, path().c_str(), nullptr, flags, nullptr) == 0;
  }

 private:
  TempFolder folder_;
  bool mounted_ = false;
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
