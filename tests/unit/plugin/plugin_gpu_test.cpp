// On a machine with a GPU: the plug-in opens, LibTorch sees the device, and operators without kernels of ours run on
// it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "kernels/norm.hpp"
#include "kernels/plugin.hpp"

namespace argosy::kernels {
namespace {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    open_cuda_plugin();
  }
};

TEST_F(Gpu, IsSeenByLibTorchAfterOpening) {
  ASSERT_TRUE(at::hasCUDA());
  const at::Tensor ones = at::ones({3, 4}, at::TensorOptions().device(at::kCUDA));
  EXPECT_EQ(at::matmul(ones, ones.t()).sum().item<float>(), 36.0F);
}

TEST_F(Gpu, OpensOnceAndRefusesADeviceThatIsNotThere) {
  open_cuda_plugin();
  EXPECT_THROW(open_cuda_plugin(gpu_count()), Error);
}

TEST_F(Gpu, NormGivesTheValuesOfTheCpu) {
  const at::Tensor x = at::arange(24, at::kFloat).reshape({3, 8}), weight = at::linspace(0.5, 1.5, 8);
  const auto there = norm(x.to(at::kCUDA), weight.to(at::kCUDA), std::nullopt, 1e-5, false);
  const auto here = norm(x, weight, std::nullopt, 1e-5, false);
  const double few_roundings = 8 * std::numeric_limits<float>::epsilon();
  EXPECT_TRUE(at::allclose(std::get<0>(there).cpu(), std::get<0>(here), few_roundings, few_roundings));
}

}  // namespace
}  // namespace argosy::kernels
