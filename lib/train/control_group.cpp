#include "train/control_group.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace argosy::train {
namespace {

/// The kernel's files say that they have 0 bytes: they are read to their end.
std::string text_in(const Files& files, const Path& path) {
  std::string text(1 << 16, '\0');
  try {
    text.resize(files.stream(path).read(as_writable_bytes(std::span<char>{text})));
  } catch (const Error&) {  // not Linux, hidden, or no such controller
    text.clear();
  }
  return text;
}

/// "max" is -1.
std::vector<double> numbers_in(const Files& files, const Path& path) {
  std::vector<double> numbers;
  std::istringstream text(text_in(files, path));
  for (std::string word; text >> word;) numbers.push_back(word == "max" ? -1 : std::atof(word.c_str()));
  return numbers;
}

std::optional<double> processors_of(const Files& files, const Path& group) {
  const std::vector<double> v2 = numbers_in(files, group / "cpu.max");
  if (v2.size() == 2 && v2[0] > 0 && v2[1] > 0) return v2[0] / v2[1];
  const std::vector<double> quota = numbers_in(files, group / "cpu.cfs_quota_us"),
                            period = numbers_in(files, group / "cpu.cfs_period_us");
  if (quota.size() == 1 && period.size() == 1 && quota[0] > 0 && period[0] > 0) return quota[0] / period[0];
  return std::nullopt;
}

std::optional<double> bytes_of(const Files& files, const Path& group) {
  for (const char* const name : {"memory.max", "memory.limit_in_bytes"}) {
    const std::vector<double> limit = numbers_in(files, group / name);
    if (limit.size() == 1 && limit[0] > 0) return limit[0];
  }
  return std::nullopt;
}

template <class LimitOf>
std::optional<double> smallest(const Files& files, const Path& self, const Path& mount, const std::string& controller,
                               const LimitOf& limit_of) {
  std::optional<double> least;
  std::istringstream lines(text_in(files, self));
  for (std::string line; std::getline(lines, line);) {  // "0::/path" (v2), "4:cpu,cpuacct:/path" (v1)
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    const Path root = is_v2 ? mount : mount / controllers;
    // Inside a container the path may be that of the host: then only the root is there.
    for (Path group = Path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      if (const auto limit = limit_of(files, root / group)) least = std::min(least.value_or(*limit), *limit);
      if (group.empty()) break;
    }
  }
  return least;
}

}  // namespace

std::optional<double> cpu_quota(const Files& files, const Path& self, const Path& mount) {
  return smallest(files, self, mount, "cpu", processors_of);
}

std::optional<double> memory_limit(const Files& files, const Path& self, const Path& mount) {
  return smallest(files, self, mount, "memory", bytes_of);
}

}  // namespace argosy::train
