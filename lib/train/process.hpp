#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "comm/run_main.hpp"
#include "plan/time_model.hpp"

/// The device of this process, what is known about it, and the memory that was used.
namespace argosy::train {

/// The device for `wish` (auto, cpu, cuda). With cuda, every rank gets its own GPU; with auto, only if each rank can.
/// **Collective.** Throws Error{device} if cuda is asked for and a rank has no GPU of its own, or if a GPU cannot be
/// used.
[[nodiscard]] c10::Device choose_device(const std::string& wish, const comm::Context& context);

/// The peak of a device in dense bf16 FLOP/s. Absent for the CPU and for a GPU that is not in the table.
[[nodiscard]] std::optional<double> peak_flops(c10::Device device);

/// The planner's data about the device; null if it does not know it.
[[nodiscard]] const plan::Gpu* planned_gpu(c10::Device device);

/// Memory of one rank in bytes: that of its GPU, or its share of the node's. ARGOSY_RANK_MEMORY sets another number.
/// Absent if unknown. Throws Error{usage} for a variable that is no number.
[[nodiscard]] std::optional<std::int64_t> rank_memory_bytes(c10::Device device, const comm::Context& context);
/// The same on this machine's CPUs, for `ranks` of them: of its memory or, if that is less, the limit of the control
/// group.
[[nodiscard]] std::optional<std::int64_t> host_memory_bytes(const Files& files, int ranks);

/// The peak memory of this process, in bytes.
[[nodiscard]] std::uint64_t peak_memory_bytes();

}  // namespace argosy::train
