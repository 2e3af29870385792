#include "train/process.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "kernels/plugin.hpp"
#include "telemetry/flops.hpp"

namespace argosy::train {

c10::Device choose_device(const std::string& wish, const comm::Context& context) {
  // Where the launcher shows each rank a GPU of its own, that is number 0.
  const int index = kernels::gpu_count() == 1 ? 0 : context.topology.local_rank();
  const std::string mine = wish == "cpu" ? std::string() : kernels::gpu_identity(index);
  const std::vector<std::string> all = context.world.all_gather(mine);
  const auto sharing = std::count(all.begin(), all.end(), mine);
  const bool is_own = !mine.empty() && sharing == 1;
  const bool all_own = !comm::any_of(context.world, !is_own), any = comm::any_of(context.world, !mine.empty());
  bool on_gpu = false;
  comm::agree(context.world, [&] {
    if (wish == "cuda" && !mine.empty() && !is_own)
      throw_error(Fault::device, "device", "one GPU for every rank", fmt::format("{} ranks on one GPU", sharing),
                  "start at most as many ranks per node as it has GPUs, or set device to cpu");
    on_gpu = wish == "cuda" ? kernels::use_gpu(wish, index) : all_own && kernels::use_gpu(wish, index);
  });
  if (any && !on_gpu && context.is_root())
    context.log.warn("not every rank has its own GPU, so all ranks compute on the CPU");
  return on_gpu ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)) : c10::Device(c10::kCPU);
}

std::optional<double> peak_flops(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  return telemetry::bf16_peak_flops(kernels::gpu_name(device.index()));
}

const plan::Gpu* planned_gpu(c10::Device device) {
  return device.is_cuda() ? plan::gpu_by_driver_name(kernels::gpu_name(device.index())) : nullptr;
}

std::optional<std::int64_t> rank_memory_bytes(c10::Device device, const comm::Topology& topology) {
  if (device.is_cuda()) {
    const plan::Gpu* const gpu = planned_gpu(device);
    return gpu == nullptr ? std::nullopt : std::optional(plan::capacity_bytes(*gpu));
  }
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::nullopt;
  return static_cast<std::int64_t>(pages) * page_bytes / topology.layout().node_size(topology.node());
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace argosy::train
