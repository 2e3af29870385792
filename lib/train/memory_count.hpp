#pragma once

#include <c10/core/Device.h>

#include <cstdint>

/// Counts the bytes that LibTorch's tensors hold on a device, to compare them with the plan. On the CPU, a counter
/// wraps LibTorch's allocator (two atomic additions per allocation). On a GPU, the count is what the caching allocator
/// has been asked for. Safe from any thread.
namespace argosy::train {

struct MemoryCount {
  std::int64_t bytes = 0, peak_bytes = 0;  // now; the maximum since reset_peak
};

/// Starts to count tensors on the CPU. Call it before the first one is made. A second call does nothing.
void count_memory();

[[nodiscard]] MemoryCount memory_of(c10::Device device);
/// Sets the peak to the bytes that are held now.
void reset_peak(c10::Device device);

}  // namespace argosy::train
