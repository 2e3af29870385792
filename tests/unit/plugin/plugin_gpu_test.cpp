// On a machine with a GPU: the plug-in opens, LibTorch sees the device, and operators without kernels of ours run on
// it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
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

TEST_F(Gpu, StochasticUpdatesRoundAsOnTheCpu) {
  for (const double slope : {0.0, 1.0}) {  // decay alone has the same bits before rounding
    const at::Tensor weights = at::linspace(-2, 2, 5003).to(at::kBFloat16), m = at::zeros({5003}),
                     v = at::zeros({5003});
    const at::Tensor gradient = at::linspace(-1, 3, 5003) * slope, clip = at::full({1}, 0.5);
    const at::Tensor weights2 = weights.to(at::kCUDA), m2 = m.to(at::kCUDA), v2 = v.to(at::kCUDA);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const AdamwOptions options{.lr = 1e-2, .epsilon = 1e-4, .weight_decay = 0.1, .step = step};
      const Rounding rounding{.seed = 1ULL << 40 | 5, .parameter = 3, .begin = 1280};
      adamw_stochastic_(weights, m, v, gradient, clip, options, rounding);
      adamw_stochastic_(weights2, m2, v2, gradient.to(at::kCUDA), clip.to(at::kCUDA), options, rounding);
    }
    const double alike = weights2.cpu().eq(weights).to(at::kDouble).mean().item<double>();
    EXPECT_GE(alike, slope == 0 ? 1.0 : 0.99);
    EXPECT_TRUE(at::allclose(v2.cpu(), v, 1e-6, 1e-9));
  }
}

}  // namespace
}  // namespace argosy::kernels
