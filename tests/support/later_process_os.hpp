#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/file.hpp"

/// A start after the process before has died, within one test process.
namespace argosy::test {

/// Where all processes, this one too, were started at another time, as if their numbers had come to others: whatever
/// ran before under these numbers is gone.
class LaterProcess {
 public:
  explicit LaterProcess(Path stat_file) : stat_file_(std::move(stat_file)) {}
  /// Of the start `number`, each later than those before.
  void start(int number) {
    std::string fields = "S";
    constexpr int state_field = 3, start_time_field = 22;
    for (int i = state_field + 1; i < start_time_field; ++i) fields += " 0";
    Files::system().write_atomically(stat_file_, fmt::format("{} (test) {} {}\n", getpid(), fields, number));
  }
  /// What is read when `path` is asked for.
  [[nodiscard]] const char* instead_of(std::string_view path) const {
    return path.starts_with("/proc/") && path.ends_with("/stat") ? stat_file_.c_str() : path.data();
  }

 private:
  Path stat_file_;
};

class LaterProcessOs : public Os {
 public:
  explicit LaterProcessOs(Path stat_file) : process_(std::move(stat_file)) { process_.start(1); }
  int open(const char* path, int flags, unsigned mode) override {
    return Os::open(process_.instead_of(path), flags, mode);
  }

 private:
  LaterProcess process_;
};

}  // namespace argosy::test
