// The kernels for GPUs and the host part that calls them, run on the host: a library of the same name as the plug-in
// has the same kernels over emulated blocks.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/cuda/start.hpp"
#include "kernels/device_table.hpp"
#include "unit/kernels/compare.hpp"
#include "unit/kernels/emulated_library.hpp"

namespace argosy::test {
namespace {

using namespace kernels;
using spec::Activation;

class Cuda : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { ASSERT_NE(emulated_kernels(), nullptr) << dlerror(); }
  at::ScalarType type = GetParam();
  double close = tolerance(type);

  /// With a NaN and both infinities, in rows of their own.
  [[nodiscard]] at::Tensor odd(at::IntArrayRef shape, double phase = 1) const {
    at::Tensor x = values(shape, type, phase);
    const at::Tensor flat = x.view({-1});
    const std::int64_t n = flat.size(0);
    if (n < 8) return x;
    flat[n / 2] = std::nanf("");
    flat[n - 1] = HUGE_VALF;
    flat[0] = -HUGE_VALF;
    return x;
  }
};

TEST_P(Cuda, NormEqualsPlain) {
  for (const auto& [rows, width] :
       {std::pair{0, 8}, {1, 1}, {3, 5}, {1100, 8}, {5, 50}, {9, 300}, {3, 2056}, {2, 6200}}) {
    const std::string shape = std::to_string(rows) + " x " + std::to_string(width);
    for (const bool rms : {false, true}) {
      const at::Tensor x = odd({rows, width}), dy = values({rows, width}, type, 2),
                       add = values({rows, width}, type, 3), weight = values({width}, type, 4);
      const OptionalTensor bias = rms ? std::nullopt : OptionalTensor(values({width}, type, 5));
      const auto [y, mean, rstd] = cuda::norm(x, weight, bias, 1e-5, rms);
      const auto [y2, mean2, rstd2] = plain::norm(x, weight, bias, 1e-5, rms);
      expect_alike(y, y2, close, shape.c_str());
      expect_alike(rstd, rstd2, 1e-5, shape.c_str());
      expect_alike(mean, mean2, 1e-5, shape.c_str());
      for (const bool accumulate : {false, true}) {
        const at::Tensor dweight = accumulate ? values({width}) : poisoned({width}), dbias = dweight.clone();
        const at::Tensor dweight2 = dweight.clone(), dbias2 = dbias.clone();
        const OptionalTensor added = accumulate ? OptionalTensor(add) : std::nullopt;
        const auto of = [&](const at::Tensor& t, bool wanted) { return wanted ? OptionalTensor(t) : std::nullopt; };
        const bool frozen = accumulate && width == 50;
        const at::Tensor dx = cuda::norm_backward(dy, x, weight, mean2, rstd2, added, of(dweight, !frozen),
                                                  of(dbias, !rms && !frozen), accumulate, rms);
        const at::Tensor dx2 = plain::norm_backward(dy, x, weight, mean2, rstd2, added, of(dweight2, !frozen),
                                                    of(dbias2, !rms && !frozen), accumulate, rms);
        expect_alike(dx, dx2, close, shape.c_str());
        expect_alike(dweight, dweight2, 1e-4, shape.c_str());
        expect_alike(dbias, dbias2, 1e-4, shape.c_str());
      }
    }
  }
}

TEST_P(Cuda, ActivationsEqualPlain) {
  for (const auto kind :
       {Activation::relu, Activation::swish, Activation::gelu, Activation::swiglu, Activation::geglu}) {
    for (const auto& [rows, width] : {std::pair{0, 8}, {1, 1}, {70, 29}, {7, 64}, {3, 2320}}) {
      const std::int64_t in = is_gated(kind) ? 2 * width : width;
      const std::string what = std::to_string(static_cast<int>(kind)) + ": " + std::to_string(width);
      for (const bool with_bias : {false, true}) {
        const at::Tensor u = odd({rows, in}) * 4, y = at::empty({rows, width}, u.options()), u2 = u.clone(),
                         y2 = y.clone(), dy = values({rows, width}, type, 3);
        const OptionalTensor bias = with_bias ? OptionalTensor(values({in}, type, 2)) : std::nullopt;
        cuda::activation(u, bias, y, kind);
        plain::activation(u2, bias, y2, kind);
        const bool relu = kind == Activation::relu;
        expect_alike(y, y2, close, what.c_str());
        if (!relu) {
          EXPECT_TRUE(at::equal(u.nan_to_num(), u2.nan_to_num())) << what;
        }
        const at::Tensor& saved = relu ? y2 : u2;
        const at::Tensor dbias = with_bias ? values({in}) : poisoned({in}), dbias2 = dbias.clone();
        const OptionalTensor again = relu ? std::nullopt : OptionalTensor(at::empty_like(y));
        const at::Tensor du = cuda::activation_backward(dy, saved, kind, dbias, with_bias, again);
        const at::Tensor du2 = plain::activation_backward(dy, saved, kind, dbias2, with_bias, {});
        expect_alike(du, du2, tolerance(type, 3e-4), what.c_str());
        expect_alike(dbias, dbias2, tolerance(type, 3e-4), what.c_str());
        if (again) {
          EXPECT_TRUE(at::equal(again->nan_to_num(), y.nan_to_num())) << what;
        }
        if (relu) {  // in place
          const at::Tensor own = values({rows, in}, type), own2 = own.clone();
          cuda::activation(own, bias, own, kind);
          plain::activation(own2, bias, own2, kind);
          expect_alike(own, own2, close, what.c_str());
        }
      }
    }
  }
}

TEST_P(Cuda, ColumnSumEqualsPlain) {
  for (const auto& [rows, width] : {std::pair{0, 5}, {1, 1}, {1003, 37}, {20000, 3}, {300, 520}}) {
    for (const at::Tensor& x : {values({rows, width}, type), values({rows, width + 3}, type).narrow(1, 1, width)}) {
      const at::Tensor sum = values({width}), sum2 = sum.clone(), first = poisoned({width}), first2 = first.clone();
      cuda::column_sum(x, sum, true);
      plain::column_sum(x, sum2, true);
      cuda::column_sum(x, first, false);
      plain::column_sum(x, first2, false);
      expect_alike(sum, sum2, 1e-5, "added");
      expect_alike(first, first2, 1e-5, "overwritten");
    }
  }
}

TEST_P(Cuda, RopeEqualsPlain) {
  for (const std::int64_t size : {2, 6, 64, 80}) {
    const at::Tensor waves = rotary_waves(40, size, 1e4);
    const at::Tensor positions = at::tensor({0, 1, 2, 0, 39, 7}, at::kLong).view({2, 3});
    for (const bool inverse : {false, true}) {
      const at::Tensor packed = values({2, 3, 5, size}, type), packed2 = packed.clone();
      const auto heads = [](const at::Tensor& of) { return of.narrow(2, 1, 3); };  // the others stay as they are
      cuda::rope_(heads(packed), std::nullopt, 4, waves, inverse);
      plain::rope_(heads(packed2), std::nullopt, 4, waves, inverse);
      cuda::rope_(heads(packed), positions, 0, waves, inverse);
      plain::rope_(heads(packed2), positions, 0, waves, inverse);
      expect_alike(packed, packed2, close, "rope");
      EXPECT_TRUE(at::equal(packed.select(2, 0), packed2.select(2, 0)));
    }
    cuda::rope_(values({0, 3, 5, size}, type), std::nullopt, 0, waves, false);
  }
}

TEST_P(Cuda, DropoutAddEqualsPlain) {
  const DropoutKey key{.seed = 7ULL << 40 | 9, .step = 3, .micro_batch = 2, .site = 1LL << 30 | 4};
  for (const auto& [rows, width] : {std::pair{0, 8}, {1, 1}, {70, 29}, {7, 64}, {3, 2320}}) {
    for (const double p : {0.0, 0.1, 0.9}) {
      const at::Tensor branch = odd({rows, width}), base = values({rows, width}, type, 2);
      for (const OptionalTensor& bias : {OptionalTensor(), OptionalTensor(values({width}, type, 3))}) {
        for (const OptionalTensor& under : {OptionalTensor(), OptionalTensor(base)}) {
          const at::Tensor y = cuda::dropout_add(under, branch, p, key, bias);
          expect_alike(y, plain::dropout_add(under, branch, p, key, bias), 1e-6, std::to_string(width).c_str());
        }
      }
    }
  }
}

TEST_P(Cuda, NoiseEqualsPlain) {
  const DropoutKey key{.seed = 7ULL << 40 | 9, .step = 3, .micro_batch = 2, .site = 4};
  for (const auto& [rows, width] : {std::pair{0, 8}, {1, 1}, {70, 29}, {7, 64}, {3, 2320}}) {
    const at::Tensor x = values({rows, width}, type), x2 = x.clone(), scales = values({rows}, at::kFloat, 2);
    cuda::add_noise_(x, scales, key);
    plain::add_noise_(x2, scales, key);
    expect_alike(x, x2, 1e-6, std::to_string(width).c_str());
  }
}

TEST_P(Cuda, EmbeddingEqualsPlain) {
  const at::Tensor ids = at::tensor({4, 1, 4, 0, 9, 4, 2, 9}, at::kLong).view({2, 4}),
                   positions = at::tensor({0, 1, 2, 0, 1, 2, 3, 11}, at::kLong).view({2, 4});
  for (const std::int64_t width : {5, 24, 2056}) {
    const at::Tensor table = values({10, width}, type), places = values({12, width}, at::kFloat, 2);
    const auto both = [&](const OptionalTensor& of, const OptionalTensor& at, std::int64_t offset) {
      expect_alike(cuda::embedding(ids, table, 4.9, of, at, offset), plain::embedding(ids, table, 4.9, of, at, offset),
                   1e-6, std::to_string(width).c_str());
    };
    both({}, {}, 0);
    both(places, {}, 7);
    both(places, positions, 0);
    EXPECT_EQ(cuda::embedding(ids.narrow(0, 0, 0), table, 1, {}, {}, 0).numel(), 0);
  }
}

TEST_P(Cuda, EmbeddingBackwardEqualsPlain) {
  for (const std::int64_t width : {5, 24, 2056}) {
    const at::Tensor ids = at::tensor({4, 1, 4, 0, 9, 4, 2, 9}, at::kLong).view({2, 4}), dx = odd({2, 4, width});
    for (const bool accumulate : {false, true}) {
      const at::Tensor got = accumulate ? values({10, width}) : poisoned({10, width}), expected = got.clone();
      cuda::embedding_backward(dx, ids, 4.9, got, accumulate, 2);
      plain::embedding_backward(dx.masked_fill(ids.eq(2).unsqueeze(2), 0), ids, 4.9, expected, accumulate, 2);
      expect_alike(got, expected, 1e-6, "gradient of the table");
      cuda::embedding_backward(dx.narrow(0, 0, 0), ids.narrow(0, 0, 0), 4.9, got, true, -1);
      expect_alike(got, expected, 1e-6, "after no ids at all");
    }
  }
}

struct Losses {
  at::Tensor sums, dh, dweight, dbias, nll;
};

/// The matrix is the identity, so that logits are h, and dh and dweight their gradient.
Losses losses(bool on_gpu, const at::Tensor& logits, const OptionalTensor& bias, const at::Tensor& labels,
              double truncation, std::int64_t chunk_rows, std::int64_t dead = 0) {
  const std::int64_t rows = logits.size(0), live = logits.size(1);
  const at::Tensor weight = at::eye(live + dead, live, logits.options());
  Losses r{{},
           poisoned({rows, live}).to(logits.scalar_type()),
           poisoned({live + dead, live}),
           poisoned({live + dead}),
           poisoned({rows}).to(at::kDouble)};
  const HeadLossOptions options{.label_smoothing = 0.1,
                                .z = 1e-3,
                                .truncation = truncation,
                                .loss_scale = 0.2,
                                .live = live,
                                .chunk_bytes = chunk_rows * live * 4};
  r.sums = (on_gpu ? cuda::head_loss : plain::head_loss)(
      logits, weight, bias, labels, options, {.dh = r.dh, .dweight = r.dweight, .dbias = r.dbias, .nll = r.nll});
  return r;
}

TEST_P(Cuda, HeadLossEqualsPlain) {
  const double of_rounded_terms = 4 * close;  // the reference does not round them, and they cancel in part
  for (const std::int64_t live : {3, 61, 64, 600}) {
    for (const std::int64_t rows : {0, 1, 300}) {
      const at::Tensor logits = values({rows, live}, type) * 3, bias = values({live + 9}, type, 3);
      const at::Tensor labels =
          (at::arange(rows) * 7).remainder(live).masked_fill(at::arange(rows).remainder(5).eq(3), -1);
      for (const double truncation : {0.0, 1.0}) {
        for (const OptionalTensor& added : {OptionalTensor(), OptionalTensor(bias)}) {
          const Losses got = losses(true, logits, added, labels, truncation, 9, 9),
                       expected = losses(false, logits, added, labels, truncation, 9, 9);
          EXPECT_LE(distance(got.sums, expected.sums), 1e-6) << got.sums << expected.sums;
          EXPECT_TRUE(at::equal(got.sums.slice(0, 2), expected.sums.slice(0, 2))) << got.sums << expected.sums;
          expect_alike(got.nll, expected.nll, 1e-6, "nll");
          expect_alike(got.dh, expected.dh, close, "dh");
          expect_alike(got.dweight, expected.dweight, close, "dweight");
          expect_alike(got.dbias, expected.dbias, of_rounded_terms, "dbias");
        }
      }
    }
  }
}

TEST_P(Cuda, LossOfOddLogitsIsThatOfPlain) {
  const std::int64_t live = 600;
  const at::Tensor zeros = at::zeros({1, live}, type), label = at::tensor({0}, at::kLong);
  const auto odd_bias = [&](std::int64_t first, std::int64_t count, float value) {
    at::Tensor bias = values({live}, type);
    bias.narrow(0, first, count).fill_(value);
    return bias;
  };
  for (const at::Tensor& bias : {odd_bias(0, 0, 0), odd_bias(100, 300, -HUGE_VALF), odd_bias(300, 1, std::nanf("")),
                                 odd_bias(300, 2, HUGE_VALF), odd_bias(0, live, -HUGE_VALF), odd_bias(0, live, 7)}) {
    const Losses got = losses(true, zeros, bias, label, 0, 1), expected = losses(false, zeros, bias, label, 0, 1);
    EXPECT_TRUE(at::equal(got.sums.isfinite(), expected.sums.isfinite())) << got.sums << expected.sums;
    EXPECT_EQ(got.dbias.isfinite().all().item<bool>(), expected.dbias.isfinite().all().item<bool>());
    if (!expected.sums.select(0, 0).isfinite().item<bool>()) continue;
    EXPECT_LT(distance(got.sums.select(0, 0), expected.sums.select(0, 0)), 1e-6);
    EXPECT_EQ(got.sums[3].item<double>(), expected.sums[3].item<double>()) << "ties go to the lower id";
    expect_alike(got.dbias, expected.dbias, close, "the gradient of logits that are finite or forbidden");
  }
}

TEST_P(Cuda, ALabelThatIsNoIdMakesTheLossNoNumber) {
  const at::Tensor logits = values({1, 61}, type), labels = at::tensor({61}, at::kLong);
  const Losses got = losses(true, logits, std::nullopt, labels, 0, 1);
  EXPECT_TRUE(std::isnan(got.sums[1].item<double>()));
  EXPECT_TRUE(got.dh.isnan().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Types, Cuda, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

/// Arrays of more than 2^31 elements, of which tests touch few pages.
class CudaFarAway : public EmulatedKernels {
 protected:
  static constexpr std::int64_t many = (1LL << 31) + (1LL << 20);

  void TearDown() override {
    run_blocks_from(0);
    for (const auto& [place, bytes] : places_) munmap(place, bytes);
  }
  void run_blocks_from(std::int64_t first) {
    reinterpret_cast<void (*)(std::int64_t)>(dlsym(emulated_kernels(), "argosy_emulate_from"))(first);
  }
  template <class T>
  T* array(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    void* const place =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) throw std::runtime_error("no room for an empty array");
    places_.emplace_back(place, bytes);
    return static_cast<T*>(place);
  }
  /// bf16 numbers.
  static at::Tensor at_place(std::uint16_t* place, std::int64_t count) {
    return at::from_blob(place, {count}, at::TensorOptions().dtype(at::kBFloat16));
  }
  const at::Tensor anywhere = at::empty({0});

 private:
  std::vector<std::pair<void*, std::size_t>> places_;
};

TEST_F(CudaFarAway, LastRowsOfTheNorm) {
  constexpr std::int64_t width = 4096, rows = many / width, last = (rows - 1) * width;
  auto *const x = array<std::uint16_t>(many), *const dy = array<std::uint16_t>(many),
              *const y = array<std::uint16_t>(many);
  float *const mean = array<float>(rows), *const rstd = array<float>(rows);
  const at::Tensor weight = values({width}, at::kBFloat16, 2);
  at_place(x + last, width).copy_(values({width}));
  at_place(dy + last, width).copy_(values({width}, at::kFloat, 3));
  const auto row = [&](std::uint16_t* of) { return at_place(of + last, width).view({1, width}); };
  const auto [y2, mean2, rstd2] = plain::norm(row(x), weight, std::nullopt, 1e-5, false);
  run_blocks_from(rows - 1);
  cuda::start(NormCall{x, weight.const_data_ptr(), nullptr, y, mean, rstd, rows, width, 1e-5F, true}, anywhere);
  expect_alike(row(y), y2, tolerance(at::kBFloat16), "y");
  EXPECT_NEAR(rstd[rows - 1], rstd2.item<float>(), 1e-5F);
  float *const parts = array<float>(norm_parts(rows) * 2 * width), *const dweight = array<float>(width);
  const at::Tensor dx2 = plain::norm_backward(row(dy), row(x), weight, mean2, rstd2, std::nullopt, std::nullopt,
                                              std::nullopt, false, false);
  run_blocks_from(norm_parts(rows) - 1);
  cuda::start(NormBackwardCall{dy, x, weight.const_data_ptr(), nullptr, y, mean, rstd, parts, dweight, dweight, rows,
                               width, false, true},
              anywhere);
  expect_alike(row(y), dx2, tolerance(at::kBFloat16), "dx");
}

TEST_F(CudaFarAway, LastRowsOfActivationRopeAndLoss) {
  constexpr std::int64_t width = 4096, rows = many / width, last = (rows - 1) * width;
  auto *const x = array<std::uint16_t>(many), *const y = array<std::uint16_t>(many);
  const auto row = [&](std::uint16_t* of) { return at_place(of + last, width).view({1, width}); };
  const double close = tolerance(at::kBFloat16);
  row(x).copy_(values({1, width}));
  const at::Tensor first = row(x).clone(), activated = at::empty_like(first);
  plain::activation(first.clone(), std::nullopt, activated, Activation::swish);
  run_blocks_from(rows - 1);
  cuda::start(ActivationCall{x, nullptr, y, rows, width, 1, true}, anywhere);
  expect_alike(row(y), activated, close, "activation");
  cuda::start(ActivationBackwardCall{x, x, y, nullptr, rows, width, 1, true}, anywhere);
  expect_alike(row(y), plain::activation_backward(first, first, Activation::swish, {}, false, {}), close,
               "its gradient");

  const at::Tensor waves = rotary_waves(10, 64, 1e4), turned = first.clone().view({1, 1, 64, 64});
  plain::rope_(turned, std::nullopt, 9, waves, false);
  cuda::start(RopeCall{x, nullptr, waves.const_data_ptr<float>(), rows, 1, 64, 32, width, width, 64, 9, false, true},
              anywhere);
  expect_alike(row(x), turned.view({1, width}), close, "rope");

  row(x).copy_(first);
  auto* const labels = array<std::int64_t>(rows);
  auto* const results = array<double>(rows * 5);
  labels[rows - 1] = 77;
  const Losses expected = losses(false, first, std::nullopt, at::tensor({77}, at::kLong), 0, 1);
  cuda::start(CrossEntropyCall{x, nullptr, labels, results, rows, width, width, 0.1, 1e-3, 0, 0.2, true, true},
              anywhere);
  expect_alike(row(x), expected.dh, close, "gradient of the logits");
  EXPECT_NEAR(results[(rows - 1) * 5 + 1], expected.sums[1].item<double>(), 1e-4);
}

TEST_F(CudaFarAway, LastRowOfTheEmbeddingTableAndLastPartOfSums) {
  constexpr std::int64_t width = 64, rows = many / width;
  float* const table = array<float>(many);
  const at::Tensor dx = values({2, width}), ids = at::full({2}, rows - 1, at::kLong), order = at::arange(2);
  const auto* const places = order.const_data_ptr<std::int64_t>();
  cuda::start(EmbeddingBackwardCall{dx.const_data_ptr(), ids.const_data_ptr<std::int64_t>(), places, table, 2, width,
                                    -1, 2, true, false},
              anywhere);
  const at::Tensor last = at::from_blob(table + (rows - 1) * width, {width});
  expect_alike(last, dx.sum(0) * 2, 1e-6, "the last row");

  const std::int64_t parts = column_parts(rows), tiles = 1;
  float *const sums = array<float>(parts * width), *const out = array<float>(width);
  run_blocks_from(parts * tiles - 1);
  cuda::start(ColumnSumCall{table, sums, out, rows, width, width, false, false}, anywhere);
  expect_alike(at::from_blob(sums + (parts - 1) * width, {width}), last, 1e-6, "the last part");

  double *const squares = array<double>(square_parts(many)), *const square = array<double>(1);
  run_blocks_from(square_parts(many) - 1);
  cuda::start(SumOfSquaresCall{table, squares, square, many}, anywhere);
  EXPECT_NEAR(squares[square_parts(many) - 1], last.square().sum().item<double>(), 1e-3);
}

TEST_F(CudaFarAway, LastElementsOfDropoutAndMeans) {
  auto* const x = array<std::uint16_t>(many);
  const at::Tensor all = at_place(x, many).view({many / 64, 64}), tail = all.narrow(0, many / 64 - 4, 4),
                   ones = values({4, 64}, at::kBFloat16);
  tail.copy_(ones);
  run_blocks_from((many + 2047) / 2048 - 1);
  cuda::add_noise_(all, at::ones({1}).expand({many / 64}).contiguous(), {1, 2, 3, 4});
  const at::Tensor noise = tail.to(at::kFloat) - ones.to(at::kFloat);
  EXPECT_NEAR(noise.square().mean().item<double>(), 1.0 / 3, 0.1);

  float *const mean = array<float>(many), *const value = array<float>(many);
  const auto end = [](float* of) { return at::from_blob(of + many - 300, {300}); };
  end(value).copy_(values({300}));
  cuda::ema_(at::from_blob(mean, {many}), at::from_blob(value, {many}), at::ones({1}), 0.75);
  expect_alike(end(mean), values({300}) * 0.25, 1e-6, "mean");
}

TEST_F(CudaFarAway, LastElementsOfASlice) {
  const AdamwOptions options{.lr = 1e-2, .step = 1};
  float *const master = array<float>(many), *const m = array<float>(many), *const v = array<float>(many),
               *const gradient = array<float>(many);
  const auto all = [](float* of) { return at::from_blob(of, {many}); };
  const auto end = [](const at::Tensor& of) { return of.narrow(0, many - 300, 300); };
  end(all(gradient)).copy_(values({300}));
  const at::Tensor zero = at::zeros({300}), expected = zero.clone();
  plain::adamw_(expected, zero.clone(), zero.clone(), values({300}), std::nullopt, at::ones({1}), options);
  run_blocks_from((many + 1023) / 1024 - 1);
  cuda::adamw_(all(master), all(m), all(v), all(gradient), std::nullopt, at::ones({1}), options);
  expect_alike(end(all(master)), expected, 1e-6, "AdamW");

  auto* const weights = array<std::uint16_t>(many);
  const Rounding rounding{.seed = 3, .begin = 128};
  run_blocks_from((many / 8 + 255) / 256 - 1);
  cuda::adamw_stochastic_(at_place(weights, many), all(m), all(v), all(gradient), at::ones({1}), options, rounding);
  const at::Tensor tail = at_place(weights, many).narrow(0, many - 256, 256);
  EXPECT_GT(tail.ne(0).sum().item<std::int64_t>(), 200);
}

}  // namespace
}  // namespace argosy::test
