#include "kernels/tensor_memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>

#include "core/large_blocks.hpp"

namespace argosy::kernels {
namespace {

struct Counter {
  std::atomic<std::int64_t> bytes{0}, peak_bytes{0};

  void add(std::int64_t size_bytes) {
    const std::int64_t now = bytes.fetch_add(size_bytes, std::memory_order_relaxed) + size_bytes;
    std::int64_t peak = peak_bytes.load(std::memory_order_relaxed);
    while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
};

/// LibTorch takes one allocator for the whole process, and tensors may outlive any owner of a counter.
Counter& counter() {
  static Counter only;
  return only;
}

constexpr std::size_t large_bytes = 64 << 10;

LargeBlocks& large_blocks() {
  static auto* const only = new LargeBlocks;  // never destroyed, like the counter
  return *only;
}

/// The size of a block is stored before it, in a field as wide as the alignment that LibTorch expects.
constexpr std::size_t header_bytes = c10::gAlignment;

void release(void* data) {
  if (data == nullptr) return;
  std::byte* const block = static_cast<std::byte*>(data) - header_bytes;
  std::int64_t size_bytes = 0;
  std::memcpy(&size_bytes, block, sizeof size_bytes);
  counter().bytes.fetch_sub(size_bytes, std::memory_order_relaxed);
  const std::size_t whole_bytes = static_cast<std::size_t>(size_bytes) + header_bytes;
  if (whole_bytes < large_bytes) {
    c10::free_cpu(block);
  } else {
    large_blocks().give_back(block, whole_bytes);
  }
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size_bytes) override {
    if (size_bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    const std::size_t whole_bytes = size_bytes + header_bytes;
    auto* const block = static_cast<std::byte*>(whole_bytes < large_bytes ? c10::alloc_cpu(whole_bytes)
                                                                          : large_blocks().take(whole_bytes));
    TORCH_CHECK(block != nullptr, "no memory for a tensor of ", size_bytes, " bytes");
    const auto size = static_cast<std::int64_t>(size_bytes);
    std::memcpy(block, &size, sizeof size);
    counter().add(size);
    return {block + header_bytes, block + header_bytes, &release, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }  // oneDNN's blocks
  void copy_data(void* to, const void* from, std::size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }
};

}  // namespace

void keep_tensor_memory() {
  static CountingAllocator only;
  c10::SetCPUAllocator(&only);
}

void reserve_tensor_memory(std::size_t bytes) { large_blocks().reserve(bytes); }

MemoryCount memory_of(c10::Device device) {
  if (device.is_cpu()) return {counter().bytes.load(), counter().peak_bytes.load()};
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto& all = stats.requested_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  return {all.current, all.peak};
}

void reset_peak(c10::Device device) {
  if (device.is_cpu()) {
    counter().peak_bytes.store(counter().bytes.load());
  } else {
    c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
  }
}

}  // namespace argosy::kernels
