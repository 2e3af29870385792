#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gemm.hpp"
#include "kernels/head_loss.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/plugin.hpp"
#include "plan/time_model.hpp"

// The kernels of one block of Mistral-7B on a GPU, 8,192 tokens in bf16, each next to its bound: the time that its
// floating-point operations take at the peak of the GPU, or its bytes at the rate of a large copy in its memory,
// whichever is longer. scripts/gpu_check runs it.
namespace {

using namespace argosy;
namespace json = boost::json;

constexpr const char* usage_text =
    "usage: gpu [--cpu]\n"
    "Prints one JSON object: the median time of each kernel on GPU 0, and its bound. With --cpu: tries every kernel "
    "with\n"
    "64 tokens on the CPU, without bounds. Exit code 77: there is no GPU.\n";

constexpr int warm_ups = 3, repeats = 10;

/// What a GPU allows; zeros on a CPU.
struct Bounds {
  double flops_per_s = 0;         // of its data sheet, in bf16
  double memory_bytes_per_s = 0;  // of a large copy, bytes read and written, measured now
};

class Bench {
 public:
  Bench(c10::Device device, const Bounds& bounds) : device_(device), bounds_(bounds) {}

  /// flops, bytes: of one call.
  void add(const char* name, double flops, double bytes, const std::function<void()>& call) {
    json::object row{{"kernel", name}, {"flops", flops}, {"bytes", bytes}};
    try {
      for (int i = 0; i < warm_ups; ++i) call();
      std::vector<double> ms;
      for (int i = 0; i < repeats; ++i) ms.push_back(time_of(call));
      std::nth_element(ms.begin(), ms.begin() + repeats / 2, ms.end());
      row["ms"] = ms[repeats / 2];
      if (bounds_.flops_per_s > 0) {
        row["bound_ms"] = 1e3 * std::max(flops / bounds_.flops_per_s, bytes / bounds_.memory_bytes_per_s);
        row["share_of_bound"] = row["bound_ms"].as_double() / ms[repeats / 2];
      }
    } catch (const c10::Error& error) {  // such as too little memory: the others go on
      row["error"] = error.what_without_backtrace();
    } catch (const Error& error) {
      row["error"] = error.what();
    }
    rows_.push_back(std::move(row));
  }
  [[nodiscard]] json::array take() { return std::move(rows_); }
  [[nodiscard]] double time_of(const std::function<void()>& call) const {
    if (device_.is_cpu()) {
      const auto begin = std::chrono::steady_clock::now();
      call();
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    }
    const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_);
    c10::Event begin(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT), end(c10::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    call();
    end.record(stream);
    end.synchronize();
    return begin.elapsedTime(end);
  }

 private:
  c10::Device device_;
  Bounds bounds_;
  json::array rows_;
};

double copy_bytes_per_s(c10::Device device) {
  const at::Tensor from = at::rand({1 << 28}, at::TensorOptions(at::kFloat).device(device)), to = at::empty_like(from);
  const Bench bench(device, {});
  double least_ms = bench.time_of([&] { to.copy_(from); });
  for (int i = 0; i < repeats; ++i) least_ms = std::min(least_ms, bench.time_of([&] { to.copy_(from); }));
  return 2e3 * static_cast<double>(from.nbytes()) / least_ms;
}

json::array measure(c10::Device device, const Bounds& bounds) {
  // Of one block; on the CPU everything is smaller.
  const bool small = device.is_cpu();
  const std::int64_t tokens = small ? 64 : 8192, width = small ? 256 : 4096, ff = small ? 896 : 14336;
  const std::int64_t heads = small ? 8 : 32, kv_heads = small ? 2 : 8, head = width / heads;
  const std::int64_t pieces = small ? 256 : 32000, elements = small ? 1 << 14 : 218'112'000;
  const auto bf16 = at::TensorOptions(at::kBFloat16).device(device),
             fp32 = at::TensorOptions(at::kFloat).device(device);
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  Bench bench(device, bounds);
  const at::Tensor x = at::rand({tokens, width}, fp32).to(at::kBFloat16);

  const auto gemm = [&](const char* name, std::int64_t in, std::int64_t out, bool of_weights) {
    const at::Tensor a = at::rand({tokens, in}, fp32).to(at::kBFloat16);
    const double flops = 2 * real(tokens) * real(in) * real(out);
    if (of_weights) {
      const at::Tensor dy = at::rand({tokens, out}, fp32).to(at::kBFloat16), dw = at::zeros({out, in}, fp32);
      bench.add(name, flops, 2 * real(tokens * (in + out)) + 8 * real(in * out),
                [&] { kernels::gemm(dy.t(), a, dw, {.accumulate = true}); });
    } else {
      const at::Tensor w = at::rand({out, in}, fp32).to(at::kBFloat16), y = at::empty({tokens, out}, bf16);
      bench.add(name, flops, 2 * real(tokens * (in + out) + in * out), [&] { kernels::gemm(a, w.t(), y); });
    }
  };
  gemm("gemm qkv", width, (heads + 2 * kv_heads) * head, false);
  gemm("gemm attention output", width, width, false);
  gemm("gemm gate and up", width, 2 * ff, false);
  gemm("gemm down", ff, width, false);
  gemm("gemm weight gradient of gate and up", width, 2 * ff, true);

  {
    const at::Tensor qkv = at::rand({1, tokens, heads + 2 * kv_heads, head}, fp32).to(at::kBFloat16),
                     d = at::empty_like(qkv);
    const auto part = [&](const at::Tensor& of, std::int64_t begin, std::int64_t count) {
      return of.narrow(2, begin, count);
    };
    const at::Tensor q = part(qkv, 0, heads), k = part(qkv, heads, kv_heads), v = part(qkv, heads + kv_heads, kv_heads);
    const kernels::AttentionMask mask{.key_lengths = {}, .segments = {}, .causal = true};
    const double flops = 2 * real(tokens) * real(tokens + 1) * real(heads * head), scale = 0.09;
    const double bytes = 2 * real(tokens * head) * real(2 * heads + 2 * kv_heads);
    bench.add("attention forward", flops, bytes, [&] { (void)kernels::attention(q, k, v, mask, scale); });
    bench.add("attention forward and backward", 3.5 * flops, 3 * bytes, [&] {
      const auto [out, lse] = kernels::attention(q, k, v, mask, scale);
      kernels::attention_backward(out, q, k, v, out, lse, mask, scale, part(d, 0, heads), part(d, heads, kv_heads),
                                  part(d, heads + kv_heads, kv_heads));
    });
    const at::Tensor waves = kernels::rotary_waves(tokens, head, 1e4).to(device);
    bench.add("rotary positions", 0, 4 * real(tokens * (heads + kv_heads) * head),
              [&] { kernels::rope_(part(qkv, 0, heads + kv_heads), {}, 0, waves, false); });
  }
  {
    const at::Tensor weight = at::full({width}, 1, bf16), dweight = at::zeros({width}, fp32);
    const double bytes = 2 * real(tokens * width);
    bench.add("norm forward", 0, 2 * bytes, [&] { (void)kernels::norm(x, weight, {}, 1e-5, true); });
    bench.add("norm forward and backward", 0, 6 * bytes, [&] {
      const auto [y, mean, rstd] = kernels::norm(x, weight, {}, 1e-5, true);
      (void)kernels::norm_backward(y, x, weight, mean, rstd, x, dweight, {}, false, true);
    });
    const at::Tensor sum = at::zeros({width}, fp32);
    bench.add("column sum", 0, bytes, [&] { kernels::column_sum(x, sum, false); });
    bench.add("dropout and residual", 0, 3 * bytes, [&] { (void)kernels::dropout_add(x, x, 0.1, {1, 2, 3, 4}); });
  }
  {
    const at::Tensor u = at::rand({tokens, 2 * ff}, fp32).to(at::kBFloat16), y = at::empty({tokens, ff}, bf16);
    const double bytes = 2 * real(tokens * ff);
    bench.add("swiglu forward", 0, 3 * bytes, [&] { kernels::activation(u, {}, y, spec::Activation::swiglu); });
    bench.add("swiglu backward", 0, 5 * bytes,
              [&] { (void)kernels::activation_backward(y, u, spec::Activation::swiglu, {}, false); });
  }
  {
    const at::Tensor ids = at::randint(0, pieces, {1, tokens}, at::TensorOptions(at::kLong).device(device));
    const at::Tensor table = at::rand({pieces, width}, fp32).to(at::kBFloat16),
                     dtable = at::zeros({pieces, width}, fp32), dh = at::empty_like(x);
    const double matrix = real(pieces * width);
    bench.add("embedding backward", 0, 2 * real(tokens * width) + 4 * matrix,
              [&] { kernels::embedding_backward(x.unsqueeze(0), ids, 1, dtable, false, -1); });
    bench.add("head and loss", 6 * real(tokens) * matrix, 4 * real(tokens * width) + 8 * matrix, [&] {
      (void)kernels::head_loss(x, table, {}, ids.view({tokens}), {.live = pieces}, {.dh = dh, .dweight = dtable});
    });
  }
  {
    const at::Tensor master = at::rand({elements}, fp32), m = at::zeros({elements}, fp32),
                     v = at::zeros({elements}, fp32), gradient = at::rand({elements}, fp32),
                     weights = at::empty({elements}, bf16), clip = at::full({1}, 0.5, fp32);
    bench.add("adamw of a block", 0, 30 * real(elements),
              [&] { kernels::adamw_(master, m, v, gradient, weights, clip, {.lr = 1e-4}); });
    bench.add("adamw without master, rounded at random", 0, 24 * real(elements),
              [&] { kernels::adamw_stochastic_(weights, m, v, gradient, clip, {.lr = 1e-4}, {.seed = 1}); });
    bench.add("sum of squares of a block", 0, 4 * real(elements), [&] { (void)kernels::sum_of_squares(gradient); });
  }
  return bench.take();
}

int run(bool on_cpu) {
  if (!on_cpu && kernels::gpu_count() == 0) {
    fmt::print(stderr, "gpu: there is no GPU; --cpu tries the kernels on the CPU\n");
    return 77;
  }
  json::object result{{"gpu", nullptr}};
  Bounds bounds;
  c10::Device device = c10::kCPU;
  if (!on_cpu) {
    kernels::open_cuda_plugin();
    device = {c10::kCUDA, 0};
    const std::string name = kernels::gpu_name(0);
    result["gpu"] = name;
    if (const plan::Gpu* const gpu = plan::gpu_by_driver_name(name)) {
      bounds = {gpu->peak_flops, copy_bytes_per_s(device)};
      result["bounds"] = {{"flops_per_s", bounds.flops_per_s}, {"memory_bytes_per_s", bounds.memory_bytes_per_s}};
    }
  }
  result["kernels"] = measure(device, bounds);
  fmt::print("{}\n", json::serialize(result));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (argc > 2 || (argc == 2 && word != "--cpu")) {
    fmt::print(stderr, "{}", usage_text);
    return 2;
  }
  try {
    return run(word == "--cpu");
  } catch (const Error& error) {
    fmt::print(stderr, "gpu: {}\n", error.what());
    return static_cast<int>(exit_code(error.fault()));
  }
}
