#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>

/// Memory of LibTorch's tensors. On a CPU it is kept when they are freed (core/large_blocks.hpp), and the bytes that
/// they hold are counted (two atomic additions per allocation). On a GPU, LibTorch's caching allocator does both; the
/// count is what it has been asked for. Safe from any thread.
namespace argosy::kernels {

struct MemoryCount {
  std::int64_t bytes = 0, peak_bytes = 0;  // now; the maximum since reset_peak
};

/// Call it once per process, before the first tensor is made on the CPU. A second call does nothing.
void keep_tensor_memory();

/// After keep_tensor_memory(): makes room for tensors of so many bytes in one piece. What is not used takes no memory.
void reserve_tensor_memory(std::size_t bytes);

[[nodiscard]] MemoryCount memory_of(c10::Device device);
/// Sets the peak to the bytes that are held now.
void reset_peak(c10::Device device);

}  // namespace argosy::kernels
