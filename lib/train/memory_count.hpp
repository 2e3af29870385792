#pragma once

#include <c10/core/Device.h>

#include <cstdint>

/// Bytes that LibTorch's tensors hold on a device, as their allocator hands them out: what a run uses beside what the
/// planner said. On the CPU a counter around LibTorch's own allocator (two atomic additions an allocation), on a GPU
/// what the caching allocator has been asked for. Safe from any thread.
namespace argosy::train {

struct MemoryCount {
  std::int64_t bytes = 0, peak_bytes = 0;  // now; the most since reset_peak
};

/// Counts tensors on the CPU from here on; call before the first one. The second call does nothing.
void count_memory();

[[nodiscard]] MemoryCount memory_of(c10::Device device);
/// Lets the peak begin again from what is held now.
void reset_peak(c10::Device device);

}  // namespace argosy::train
