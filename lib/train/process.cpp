#include "train/process.hpp"

#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.hpp"
#include "kernels/memory.hpp"
#include "kernels/plugin.hpp"
#include "telemetry/flops.hpp"

namespace argosy::train {

c10::Device choose_device(const std::string& wish, const comm::Topology& topology) {
  const bool alone = topology.world_size() == 1;
  if (!alone && wish == "cuda") {
    throw Error{Fault::device,
                {.wanted = "one rank with device cuda",
                 .got = std::to_string(topology.world_size()),
                 .where = "device",
                 .remedy = "start one rank, or write cpu: this version exchanges host memory only"}};
  }
  if (!alone || !kernels::use_gpu(wish, topology.local_rank())) return c10::kCPU;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(topology.local_rank())};
}

std::optional<double> peak_flops(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  return telemetry::bf16_peak_flops(kernels::gpu_name(device.index()));
}

int set_up_threads_and_memory(const comm::Topology& topology) {
  kernels::keep_freed_memory();
  const char* asked = std::getenv("OMP_NUM_THREADS");
  int threads = asked == nullptr ? 0 : std::atoi(asked);
  if (threads < 1) {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    const int processors = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
    threads = std::max(1, processors / topology.layout().node_size(topology.node()));
  }
  at::set_num_threads(threads);
  return threads;
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace argosy::train
