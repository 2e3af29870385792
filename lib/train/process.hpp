#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "comm/run_main.hpp"
#include "plan/time_model.hpp"

/// Settings of this process that hold for all of a run: device, threads, allocator.
namespace argosy::train {

/// The device of `wish` (auto, cpu, cuda): the rank's own GPU of its node. **Collective.** Throws Error{device} when
/// cuda is asked for and there is none, or when some ranks have a GPU and others none.
[[nodiscard]] c10::Device choose_device(const std::string& wish, const comm::Context& context);

/// Dense bf16 FLOP/s of a device at its best; absent for the CPU and for a GPU our table does not know.
[[nodiscard]] std::optional<double> peak_flops(c10::Device device);

/// The GPU of a plan, where the device is one the planner knows.
[[nodiscard]] const plan::Gpu* planned_gpu(c10::Device device);

/// Memory of one rank: of a GPU the planner knows, or this rank's share of its node's; absent when unknown. Bytes.
[[nodiscard]] std::optional<std::int64_t> rank_memory_bytes(c10::Device device, const comm::Topology& topology);

/// Threads of a rank: OMP_NUM_THREADS if set, else its share of the processors this process may use. Call before the
/// first tensor. Returns the number.
int set_up_threads_and_memory(const comm::Topology& topology);

/// Most memory this process has had, bytes.
[[nodiscard]] std::uint64_t peak_memory_bytes();

}  // namespace argosy::train
