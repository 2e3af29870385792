#include "kernels/plugin.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "support/own_process.hpp"
#include "train/process.hpp"

namespace argosy::kernels {
namespace {

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

}  // namespace
}  // namespace argosy::kernels
