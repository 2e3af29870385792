#include "kernels/plugin.hpp"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "kernels/tensor_memory.hpp"
#include "support/own_process.hpp"
#include "train/process.hpp"

namespace argosy::kernels {
namespace {

/// LibTorch's allocator on a GPU, which answers nothing before LibTorch has been initialized.
class StandInAllocator final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return is_initialized; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    TORCH_CHECK(is_initialized && device == 0, "Invalid device argument");
    return {};
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
  c10::DataPtr allocate(std::size_t /*size_bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*size_bytes*/) const override {}

  bool is_initialized = false;
};

StandInAllocator& allocator() {
  static StandInAllocator only;
  return only;
}

struct StandInHooks final : at::CUDAHooksInterface {
  explicit StandInHooks(at::CUDAHooksArgs /*none*/) {}
  void init() const override {
    c10::SetAllocator(c10::kCUDA, &allocator());
    allocator().is_initialized = true;
  }
};

TEST(UseGpu, IsFalseOnRequestOfTheCpu) { EXPECT_FALSE(use_gpu("cpu")); }

TEST(UseGpu, RefusesAnotherWord) { EXPECT_THROW((void)use_gpu("gpu"), Error); }

// In a child process: what the driver offers is fixed at its first start.
TEST(WithoutAGpu, AutoIsTheCpuAndCudaIsOneSentence) {
  const int code = test::exit_code_in_child([] {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    if (gpu_count() != 0 || use_gpu("auto")) return 1;
    try {
      (void)use_gpu("cuda");
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool clear = text.find("there is no usable GPU: ") != std::string::npos &&
                         text.find("set device to cpu") != std::string::npos && text.find('\n') == std::string::npos;
      return error.fault() == Fault::device && exit_code(error.fault()) == Exit::comm && clear ? 0 : 2;
    }
    return 3;
  });
  EXPECT_EQ(code, 0);
}

// In a child process, whose libcuda.so.1 is our stand-in: a driver with an H200 and a GPU of our invention.
TEST(WithAStandInDriver, TheNameOfAGpuLeadsToItsPeak) {
  const int code = test::exit_code_in_child([] {
    if (train::peak_flops(c10::kCPU)) return 1;
    if (dlopen(STAND_IN_DRIVER, RTLD_NOW | RTLD_GLOBAL) == nullptr) return 2;
    if (gpu_count() != 2) return 3;
    if (gpu_name(0) != "NVIDIA H200" || gpu_name(1) != "Abacus 1" || !gpu_name(2).empty() || !gpu_name(-1).empty())
      return 4;
    if (gpu_identity(0).size() != 16 || gpu_identity(0) == gpu_identity(1) || gpu_identity(0) != gpu_identity(0))
      return 7;
    if (!gpu_identity(2).empty()) return 8;
    if (train::peak_flops({c10::kCUDA, 0}) != 989.4e12) return 5;
    if (train::peak_flops({c10::kCUDA, 1})) return 6;
    return 0;
  });
  EXPECT_EQ(code, 0);
}

// In a child process, with stand-ins for the driver, LibTorch's CUDA part and the plug-in.
TEST(WithAStandInDriver, LibTorchCountsItsMemoryAsSoonAsTheGpuIsChosen) {
  const int code = test::exit_code_in_child([] {
    for (const char* const library : {STAND_IN_DRIVER, STAND_IN_TORCH_CUDA, STAND_IN_PLUGIN})
      if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) == nullptr) return 1;
    at::CUDAHooksRegistry()->Register("CUDAHooks",
                                      [](at::CUDAHooksArgs none) -> std::unique_ptr<at::CUDAHooksInterface> {
                                        return std::make_unique<StandInHooks>(none);
                                      });
    if (!use_gpu("cuda", 0)) return 2;
    return kernels::memory_of({c10::kCUDA, 0}).bytes == 0 && allocator().is_initialized ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace argosy::kernels
