// Kernels of the optimizer for GPUs, run on the host.
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include "kernels/device_table.hpp"
#include "unit/kernels/compare.hpp"
#include "unit/kernels/emulated_library.hpp"

namespace argosy::test {
namespace {

using namespace kernels;

class CudaOptimizer : public EmulatedKernels {};

/// Weights, moments and gradient of a slice that begins `skipped` elements after one of 16 bytes.
struct Slice {
  at::Tensor master, m, v, weights, gradient;
  Slice(std::int64_t n, std::int64_t skipped) {
    const auto of = [&](double phase) { return values({n + skipped}, at::kFloat, phase).slice(0, skipped); };
    master = of(1);
    m = of(2);
    v = of(3).abs_();
    gradient = of(4);
    weights = master.to(at::kBFloat16);
    if (n > 100) gradient[77] = std::nanf("");
    if (n > 100) gradient[78] = HUGE_VALF;
  }
};

TEST_F(CudaOptimizer, AdamwEqualsPlain) {
  const AdamwOptions options{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-3, .weight_decay = 0.1, .step = 3};
  for (const std::int64_t n : {0, 1, 1037, 4096}) {
    for (const std::int64_t skipped : {0, 1}) {
      for (const float clip : {0.3F, -1.0F}) {
        const Slice got(n, skipped), expected(n, skipped);
        const bool with_weights = skipped == 0;
        const auto of = [&](const Slice& s) { return with_weights ? OptionalTensor(s.weights) : std::nullopt; };
        cuda::adamw_(got.master, got.m, got.v, got.gradient, of(got), at::tensor({clip}), options);
        plain::adamw_(expected.master, expected.m, expected.v, expected.gradient, of(expected), at::tensor({clip}),
                      options);
        const double most = clip < 0 ? 0 : 1e-6;
        expect_alike(got.master, expected.master, most, "master");
        expect_alike(got.m, expected.m, most, "m");
        expect_alike(got.v, expected.v, most, "v");
        if (with_weights && clip > 0) {
          EXPECT_TRUE(at::equal(got.weights.nan_to_num(), got.master.to(at::kBFloat16).nan_to_num()));
        }
      }
    }
  }
}

TEST_F(CudaOptimizer, StochasticUpdatesHaveTheBitsOfTheCpu) {
  for (const double scale : {0.0, 1.0}) {  // decay alone has the same bits everywhere
    for (const std::int64_t n : {0, 5, 5003}) {
      const AdamwOptions options{.lr = 1e-2, .epsilon = 1e-4, .weight_decay = 0.1, .step = 7};
      const at::Tensor weights = values({n}, at::kBFloat16), m = at::zeros({n}), v = at::zeros({n}),
                       gradient = values({n}) * scale, clip = at::tensor({0.5F});
      const at::Tensor weights2 = weights.clone(), m2 = m.clone(), v2 = v.clone();
      const Rounding rounding{.seed = 1ULL << 40 | 5, .parameter = 3, .begin = 1280};
      cuda::adamw_stochastic_(weights, m, v, gradient, clip, options, rounding);
      kernels::adamw_stochastic_(weights2, m2, v2, gradient, clip, options, rounding);
      if (n == 0) continue;
      const double alike = weights.eq(weights2).to(at::kDouble).mean().item<double>();
      EXPECT_GE(alike, scale == 0 ? 1.0 : 0.999);  // a fused multiply-add may move a value over the edge
      EXPECT_LT(distance(m, m2), 1e-6);
      EXPECT_LT(distance(v, v2), 1e-6);
      cuda::adamw_stochastic_(weights2, m, v, gradient, at::tensor({-1.0F}), options, rounding);
      EXPECT_EQ(weights.eq(weights2).to(at::kDouble).mean().item<double>(), alike) << "a skipped step";
    }
  }
}

TEST_F(CudaOptimizer, EmaEqualsPlain) {
  for (const std::int64_t n : {0, 1, 1037, 4096}) {
    for (const std::int64_t skipped : {0, 1}) {
      for (const float clip : {0.3F, -1.0F}) {
        const at::Tensor mean = values({n + skipped}).slice(0, skipped), mean2 = mean.clone(),
                         x = values({n + skipped}, at::kFloat, 2).slice(0, skipped);
        cuda::ema_(mean, x, at::tensor({clip}), 0.9);
        plain::ema_(mean2, x, at::tensor({clip}), 0.9);
        expect_alike(mean, mean2, clip < 0 ? 0 : 1e-6, "mean");
      }
    }
  }
}

TEST_F(CudaOptimizer, SumOfSquaresEqualsPlain) {
  for (const std::int64_t n : {0, 1, 1000, 65536, 200001}) {
    for (const std::int64_t skipped : {0, 1}) {
      const at::Tensor x = values({n + skipped}).slice(0, skipped);
      const double expected = plain::sum_of_squares(x).item<double>();
      EXPECT_NEAR(cuda::sum_of_squares(x).item<double>(), expected, 1e-12 * expected) << n;
    }
  }
  EXPECT_TRUE(std::isnan(cuda::sum_of_squares(at::tensor({1.0F, std::nanf(""), HUGE_VALF})).item<double>()));
}

}  // namespace
}  // namespace argosy::test
