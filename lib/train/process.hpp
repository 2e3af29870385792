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

/// Memory of one rank in bytes: that of its GPU if the planner knows it, or its share of the node's memory. Absent if
/// unknown.
[[nodiscard]] std::optional<std::int64_t> rank_memory_bytes(c10::Device device, const comm::Topology& topology);

/// The peak memory of this process, in bytes.
[[nodiscard]] std::uint64_t peak_memory_bytes();

}  // namespace argosy::train
