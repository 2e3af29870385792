#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/file.hpp"

/// A machine that was started again: whatever ran before is gone.
namespace argosy::test {

/// Another boot id, read from a file of the test's own.
class RebootedOs : public Os {
 public:
  explicit RebootedOs(std::string boot_id) : boot_id_(std::move(boot_id)) {}
  int open(const char* path, int flags, unsigned mode) override {
    constexpr std::string_view asked = "/proc/sys/kernel/random/boot_id";
    return Os::open(path == asked ? boot_id_.c_str() : path, flags, mode);
  }

 private:
  std::string boot_id_;
};

}  // namespace argosy::test
