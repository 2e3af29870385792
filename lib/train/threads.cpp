#include "train/threads.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "core/error.hpp"

namespace argosy::train {
namespace {

/// '1' for each processor that this process may use; empty where the kernel does not say.
std::string own_processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return {};
  std::string text;
  for (int i = 0; i < CPU_SETSIZE; ++i) text += CPU_ISSET(i, &usable) ? '1' : '0';
  return text.substr(0, text.rfind('1') + 1);
}

/// Numbers of a file, as far as it can be read; "max" is -1.
std::vector<double> numbers_in(const Files& files, const Path& path) {
  std::vector<double> numbers;
  try {
    std::istringstream text(files.read_text(path, 4096));
    for (std::string word; text >> word;) numbers.push_back(word == "max" ? -1 : std::atof(word.c_str()));
  } catch (const Error&) {  // no such controller
  }
  return numbers;
}

std::optional<double> limit_of(const Files& files, const Path& group) {
  const std::vector<double> v2 = numbers_in(files, group / "cpu.max");
  if (v2.size() == 2 && v2[0] > 0 && v2[1] > 0) return v2[0] / v2[1];
  const std::vector<double> quota = numbers_in(files, group / "cpu.cfs_quota_us"),
                            period = numbers_in(files, group / "cpu.cfs_period_us");
  if (quota.size() == 1 && period.size() == 1 && quota[0] > 0 && period[0] > 0) return quota[0] / period[0];
  return std::nullopt;
}

}  // namespace

std::optional<double> cpu_quota(const Files& files, const Path& self, const Path& mount) {
  std::string text;
  try {
    text = files.read_text(self, 1 << 16);
  } catch (const Error&) {  // not Linux, or hidden
    return std::nullopt;
  }
  std::optional<double> least;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {  // "0::/path" (v2), "4:cpu,cpuacct:/path" (v1)
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const Path root = is_v2 ? mount : mount / controllers;
    // Inside a container the path may be that of the host: then only the root is there.
    for (Path group = Path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      if (const auto limit = limit_of(files, root / group)) least = std::min(least.value_or(*limit), *limit);
      if (group.empty()) break;
    }
  }
  return least;
}

int threads_of(std::span<const std::string> processors, std::size_t rank, std::optional<double> quota) {
  double share = 0;
  for (std::size_t i = 0; i < processors[rank].size(); ++i) {
    if (processors[rank][i] != '1') continue;
    share += 1.0 / static_cast<double>(std::count_if(processors.begin(), processors.end(), [i](const std::string& set) {
               return i < set.size() && set[i] == '1';
             }));
  }
  if (quota) share = std::min(share, *quota / static_cast<double>(processors.size()));
  return std::max(1, narrow<int>(std::llround(std::floor(share + 1e-6))));
}

Threads set_up_threads(const comm::Context& context) {
  const comm::Communicator& node = context.topology.node_comm();
  const std::vector<std::string> processors = node.all_gather(own_processors());
  const std::optional<double> quota = cpu_quota(context.files);
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  Threads threads{.count = asked == nullptr ? 0 : std::atoi(asked), .is_asked = true, .why = "OMP_NUM_THREADS"};
  if (threads.count < 1) {
    const auto rank = static_cast<std::size_t>(node.rank());
    threads = {.count = threads_of(processors, rank, quota), .why = "a rank's share of its processors"};
    if (threads.count < threads_of(processors, rank, {}))
      threads.why = fmt::format("a rank's share of the {:.3g} processors of its control group", *quota);
  }
  at::set_num_threads(threads.count);
  return threads;
}

}  // namespace argosy::train
