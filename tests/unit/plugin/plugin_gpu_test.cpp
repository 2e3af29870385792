// On a machine with a GPU: the plug-in opens, LibTorch sees the device, and operators give the values of the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gemm.hpp"
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
  EXPECT_THROW(open_cuda_plugin(-1), Error);
  open_cuda_plugin();
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

/// What a function leaves of the tensors that it gets, on the GPU and on the CPU: the norm of their difference.
template <class Function>
void expect_values_of_the_cpu(Function&& f, std::vector<at::Tensor> tensors, double most) {
  std::vector<at::Tensor> there;
  for (at::Tensor& tensor : tensors) there.push_back(tensor.to(at::kCUDA));
  for (at::Tensor& result : f(there)) there.push_back(result);
  for (at::Tensor& result : f(tensors)) tensors.push_back(result);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor expected = tensors[i].to(at::kDouble), apart = there[i].cpu().to(at::kDouble) - expected;
    EXPECT_LE(apart.norm().item<double>(), most * expected.norm().item<double>()) << i;
  }
}

TEST_F(Gpu, KernelsGiveTheValuesOfTheCpu) {
  using Tensors = std::vector<at::Tensor>;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double most = type == at::kFloat ? 1e-4 : 3e-2;
    for (const std::int64_t width : {30, 64, 1040}) {
      const at::Tensor x = (at::arange(600 * width) * 0.37).sin().view({600, width}).to(type), dy = x.flip(0),
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

TEST_F(Gpu, ElementwiseKernelsGiveTheValuesOfTheCpu) {
  using Tensors = std::vector<at::Tensor>;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t width : {30, 64, 1040}) {
      const at::Tensor x = (at::arange(600 * width) * 0.37).sin().view({600, width}).to(type),
                       scales = at::linspace(-1, 1, 600), ids = at::arange(600).remainder(37).view({2, 300});
      const auto all = [](Tensors& t) {
        const DropoutKey key{.seed = 1ULL << 35 | 3, .step = 5, .micro_batch = 1, .site = 7};
        const at::Tensor kept = dropout_add(t[0].flip(0), t[0], 0.3, key, t[0][7]);
        const at::Tensor added = dropout_add(t[0].flip(0), t[0], 0, key);
        const at::Tensor rows = embedding(t[2], t[0], 2.5, t[0].to(at::kFloat), t[2], 0);
        add_noise_(t[0], t[1], key);
        const at::Tensor mean = at::zeros_like(t[1]);
        ema_(mean, t[1], at::ones({1}, t[1].options()), 0.9);
        return Tensors{kept, added, rows, mean};
      };
      expect_values_of_the_cpu(all, {x, scales, ids}, type == at::kFloat ? 1e-6 : 1e-2);
    }
  }
}

TEST_F(Gpu, ProductsGiveTheValuesOfTheCpu) {
  using Tensors = std::vector<at::Tensor>;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::linspace(-1, 1, 40 * 72).sin().view({40, 72}).to(type),
                     b = at::linspace(-3, 2, 72 * 24).cos().view({72, 24}).to(type),
                     bias = at::linspace(-1, 1, 24).to(type);
    const auto products = [](Tensors& t) {
      Tensors results;
      for (const at::ScalarType to : {t[0].scalar_type(), at::kFloat}) {
        for (const bool accumulate : {false, true}) {
          for (const OptionalTensor& of : {OptionalTensor(), OptionalTensor(t[2])}) {
            const at::Tensor c = at::ones({40, 24}, t[0].options().dtype(to));
            gemm(t[0], t[1], c, {.accumulate = accumulate, .bias = of});
            results.push_back(c);
          }
        }
      }
      const at::Tensor slope = at::ones({72, 24}, t[0].options().dtype(at::kFloat));
      gemm(t[0].t(), results[0].contiguous(), slope, {.accumulate = true});  // as for gradients of weights
      results.push_back(slope / 10);
      return results;
    };
    expect_values_of_the_cpu(products, {a, b, bias}, type == at::kFloat ? 1e-4 : 3e-2);
  }
}

struct Attended {
  const char* name;
  std::int64_t queries, keys, heads, kv_heads, size;
  bool causal, lengths, segments, bias;
  std::int64_t window;
};

class GpuAttention : public Gpu, public testing::WithParamInterface<Attended> {};

TEST_P(GpuAttention, GivesTheValuesOfTheCpuAndTheSameBitsEachTime) {
  const Attended c = GetParam();
  const std::int64_t rows = 2, all = c.heads + 2 * c.kv_heads;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto heads = [&](std::int64_t positions, double phase) {
      return (at::arange(rows * positions * all * c.size, at::kFloat) * 0.37 + phase)
          .sin()
          .view({rows, positions, all, c.size})
          .to(type);
    };
    const at::Tensor queries = heads(c.queries, 0), keys = heads(c.keys, 1), dout = heads(c.queries, 2);
    AttentionMask mask{.key_lengths = {}, .segments = {}, .causal = c.causal, .window = c.window};
    if (c.lengths) mask.key_lengths = at::tensor({c.keys, c.keys / 3}, at::kLong);
    if (c.segments) {  // of 70 positions; in the second row one of all but 140
      mask.segments = (at::arange(c.keys) / 70).to(at::kLong).repeat({rows, 1});
      mask.segments->select(0, 1).narrow(0, 70, std::max<std::int64_t>(0, c.keys - 140)).fill_(1);
    }
    if (c.bias) mask.bias = at::linspace(-2, 2, c.heads * (c.queries + c.keys - 1)).view({c.heads, -1});
    const auto results = [&](c10::Device device) {
      const auto there = [&](const OptionalTensor& x) { return x ? OptionalTensor(x->to(device)) : std::nullopt; };
      AttentionMask seen = mask;
      seen.key_lengths = there(mask.key_lengths), seen.segments = there(mask.segments), seen.bias = there(mask.bias);
      const at::Tensor qs = queries.to(device), kvs = keys.to(device), g = dout.to(device).narrow(2, 0, c.heads);
      const at::Tensor q = qs.narrow(2, 0, c.heads), k = kvs.narrow(2, c.heads, c.kv_heads),
                       v = kvs.narrow(2, c.heads + c.kv_heads, c.kv_heads);
      const auto [out, lse] = attention(q, k, v, seen, 0.3);
      const at::Tensor dq = at::full_like(q, 7), dk = at::full_like(k, 7), dv = at::full_like(v, 7);
      const OptionalTensor dbias = seen.bias ? OptionalTensor(at::empty_like(*seen.bias)) : std::nullopt;
      attention_backward(g, q, k, v, out, lse, seen, 0.3, dq, dk, dv, dbias);
      return std::vector<at::Tensor>{out.cpu(), dq.cpu(), dk.cpu(), dv.cpu(), dbias ? dbias->cpu() : at::zeros({1})};
    };
    const auto here = results(at::kCPU), there = results(at::kCUDA), again = results(at::kCUDA);
    for (std::size_t i = 0; i < here.size(); ++i) {
      const at::Tensor a = there[i].to(at::kDouble), b = here[i].to(at::kDouble);
      const double apart = ((a - b).norm() / (b.norm() + 1e-12)).item<double>();
      EXPECT_LT(apart, type == at::kFloat ? 1e-4 : 1.5e-2) << i << ' ' << c10::toString(type);
      EXPECT_TRUE(at::equal(there[i], again[i])) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuAttention,
                         testing::Values(Attended{"Causal", 300, 300, 4, 4, 64, true, false, false, false, 0},
                                         Attended{"Grouped", 517, 517, 8, 2, 128, true, false, false, false, 0},
                                         Attended{"Filled", 300, 300, 32, 8, 64, true, false, false, false, 0},
                                         Attended{"Long", 1100, 1100, 8, 2, 128, true, false, false, false, 0},
                                         Attended{"LongPacked", 1100, 1100, 8, 2, 64, true, false, true, false, 0},
                                         Attended{"LongAlone", 4000, 4000, 8, 4, 64, true, false, true, false, 0},
                                         Attended{"Window", 517, 517, 8, 2, 128, true, false, false, false, 100},
                                         Attended{"Packed", 517, 517, 8, 2, 128, true, false, true, false, 0},
                                         Attended{"PackedWindow", 300, 300, 2, 1, 40, true, false, true, false, 20},
                                         Attended{"Encoder", 130, 130, 4, 4, 64, false, true, false, false, 0},
                                         Attended{"Cross", 70, 200, 4, 2, 32, false, true, false, false, 0},
                                         Attended{"Cached", 1, 200, 4, 2, 32, true, false, false, false, 0},
                                         Attended{"LaterQueries", 40, 200, 4, 2, 32, true, false, false, false, 60},
                                         Attended{"OddHead", 100, 100, 4, 2, 20, true, false, false, false, 0},
                                         Attended{"Bias", 100, 100, 4, 2, 16, true, false, false, true, 0}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace argosy::kernels
