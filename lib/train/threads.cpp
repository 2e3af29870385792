#include "train/threads.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/error.hpp"
#include "train/control_group.hpp"

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

}  // namespace

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
