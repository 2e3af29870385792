#include "kernels/tensor_memory.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace argosy::test {
namespace {

const c10::Device cpu{c10::kCPU};

TEST(TensorMemory, FollowsTensorsAndTheirPeak) {
  kernels::keep_tensor_memory();
  const std::int64_t before = kernels::memory_of(cpu).bytes;
  {
    const at::Tensor kept = at::empty({1000}, at::kFloat);
    kernels::reset_peak(cpu);
    EXPECT_EQ(kernels::memory_of(cpu).bytes, before + 4000);
    (void)at::empty({250}, at::kDouble);
    EXPECT_EQ(kernels::memory_of(cpu).bytes, before + 4000);
    EXPECT_EQ(kernels::memory_of(cpu).peak_bytes, before + 6000);
    kernels::reset_peak(cpu);
    EXPECT_EQ(kernels::memory_of(cpu).peak_bytes, before + 4000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(kept.data_ptr()) % 64, 0U) << "as LibTorch's kernels expect";
  }
  EXPECT_EQ(kernels::memory_of(cpu).bytes, before);
}

TEST(TensorMemory, OfLargeTensorsIsUsedAgainWhateverSmallOnesLieBetween) {
  kernels::keep_tensor_memory();
  kernels::reserve_tensor_memory(64 << 20);
  constexpr std::int64_t mib = 1 << 20;
  const auto bytes = [](std::int64_t n) { return at::empty({n}, at::kByte); };
  std::vector<at::Tensor> large, small;
  const void* first = nullptr;
  for (int i = 0; i < 8; ++i) {
    large.push_back(bytes(4 * mib));
    small.push_back(bytes(100));
    if (i == 0) first = large[0].data_ptr();
  }
  large.clear();
  EXPECT_EQ(bytes(32 * mib).data_ptr(), first) << "eight blocks have become one";
}

}  // namespace
}  // namespace argosy::test
