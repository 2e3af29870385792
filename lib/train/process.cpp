#include "train/process.hpp"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "comm/launcher.hpp"
#include "core/error.hpp"
#include "kernels/plugin.hpp"
#include "telemetry/flops.hpp"
#include "train/control_group.hpp"

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

namespace {

std::optional<std::int64_t> set_memory_bytes() {
  constexpr const char* name = "ARGOSY_RANK_MEMORY";
  const std::string text = comm::environment_variable(name).value_or("");
  if (text.empty()) return std::nullopt;
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc{} || end != text.data() + text.size() || bytes < 1)
    throw_error(Fault::usage, name, "a number of bytes above 0", text, "correct it, or unset it");
  return bytes;
}

}  // namespace

std::optional<std::int64_t> host_memory_bytes(const Files& files, int ranks) {
  if (const auto set = set_memory_bytes()) return set;
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::nullopt;
  const std::int64_t all = static_cast<std::int64_t>(pages) * page_bytes;
  const double limit = memory_limit(files).value_or(static_cast<double>(all));
  return (limit < static_cast<double>(all) ? static_cast<std::int64_t>(limit) : all) / ranks;
}

std::optional<std::int64_t> rank_memory_bytes(c10::Device device, const comm::Context& context) {
  const comm::Topology& topology = context.topology;
  if (device.is_cpu()) return host_memory_bytes(context.files, topology.layout().node_size(topology.node()));
  if (const auto set = set_memory_bytes()) return set;
  const plan::Gpu* const gpu = planned_gpu(device);
  const auto [free, all] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  const std::int64_t own = static_cast<std::int64_t>(all) - static_cast<std::int64_t>(plan::context_gib * (1 << 30));
  return gpu == nullptr ? own : std::min(own, plan::capacity_bytes(*gpu));
}

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace argosy::train
