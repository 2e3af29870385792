#include "kernels/plugin.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/error.hpp"

namespace argosy::kernels {
namespace {

TEST(UseGpu, IsFalseOnRequestOfTheCpu) { EXPECT_FALSE(use_gpu("cpu")); }

TEST(UseGpu, RefusesAnotherWord) { EXPECT_THROW((void)use_gpu("gpu"), Error); }

// In a child process: what the driver offers is fixed at its first start.
TEST(WithoutAGpu, AutoIsTheCpuAndCudaIsOneSentence) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    if (gpu_count() != 0 || use_gpu("auto")) _exit(1);
    try {
      (void)use_gpu("cuda");
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool clear = text.find("an NVIDIA GPU and its driver") != std::string::npos &&
                         text.find("set device to cpu") != std::string::npos && text.find('\n') == std::string::npos;
      _exit(error.fault() == Fault::device && exit_code(error.fault()) == Exit::comm && clear ? 0 : 2);
    }
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace argosy::kernels
