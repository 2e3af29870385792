// On a machine with a GPU: the plug-in opens, LibTorch sees the device, and operators give the values of the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/head_loss.hpp"
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

/// What a function leaves of the tensors that it gets, on the GPU and on the CPU.
template <class Function>
void expect_values_of_the_cpu(Function&& f, std::vector<at::Tensor> tensors, double most) {
  std::vector<at::Tensor> there;
  for (at::Tensor& tensor : tensors) there.push_back(tensor.to(at::kCUDA));
  for (at::Tensor& result : f(there)) there.push_back(result);
  for (at::Tensor& result : f(tensors)) tensors.push_back(result);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    EXPECT_TRUE(at::allclose(there[i].cpu().to(at::kDouble), tensors[i].to(at::kDouble), most, most)) << i;
}

TEST_F(Gpu, KernelsGiveTheValuesOfTheCpu) {
  using Tensors = std::vector<at::Tensor>;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double most = type == at::kFloat ? 1e-4 : 3e-2;
    for (const std::int64_t width : {30, 64, 1040}) {
      const at::Tensor x = at::linspace(-3, 3, 600 * width).view({600, width}).to(type), dy = x.flip(0),
                       weight = at::linspace(0.5, 1.5, width).to(type), sum = at::zeros({width});
      const auto norms = [](Tensors& t) {
        const auto [y, mean, rstd] = norm(t[0], t[2], t[2], 1e-5, false);
        const at::Tensor dweight = at::zeros_like(t[3]), dbias = at::zeros_like(t[3]);
        const at::Tensor dx = norm_backward(t[1], t[0], t[2], mean, rstd, t[1], dweight, dbias, true, false);
        column_sum(t[0], t[3], true);
        return Tensors{y, mean, rstd, dx, dweight / 600, dbias / 600};
      };
      expect_values_of_the_cpu(norms, {x, dy, weight, sum}, most);
      const auto gated = [](Tensors& t) {
        const at::Tensor y = at::empty_like(t[1]), dbias = at::zeros_like(t[3]);
        activation(t[0], t[2], y, spec::Activation::swiglu);
        const at::Tensor du = activation_backward(t[1], t[0], spec::Activation::swiglu, dbias, true);
        return Tensors{y, du, dbias / 600};
      };
      expect_values_of_the_cpu(gated, {x, dy.narrow(1, 0, width / 2).contiguous(), weight, sum}, most);
      const auto loss = [width](Tensors& t) {
        const at::Tensor dh = at::empty_like(t[0]), dweight = at::zeros({width, width}, t[3].options());
        const at::Tensor sums = head_loss(
            t[0], t[1], t[2], t[3], {.label_smoothing = 0.1, .z = 1e-3, .loss_scale = 1.0 / 600, .live = width - 1},
            {.dh = dh, .dweight = dweight.to(at::kFloat), .dbias = std::nullopt});
        return Tensors{dh, sums.slice(0, 0, 3) / 600};
      };
      expect_values_of_the_cpu(loss, {x, at::eye(width).to(type), weight, at::arange(600).remainder(width - 1) - 1},
                               most);
    }
  }
}

}  // namespace
}  // namespace argosy::kernels
