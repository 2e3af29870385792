#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randint.h>
#include <benchmark/benchmark.h>

#include "kernels/attention.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/head_loss.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/tensor_memory.hpp"

// Kernels at the quickstart's shapes, one thread: 500 tokens, width 192, feed-forward 768, 4 heads of 48, 8,000 pieces.
// Argument 1 where there is one: 0 the plain reference, 1 the kernel.

namespace {

using namespace argosy;

constexpr std::int64_t tokens = 500, width = 192, inner = 768, pieces = 8000;

void gemm(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = state.range(1), n = state.range(2);
  const at::Tensor a = at::rand({m, k}), b = at::rand({n, k}).t();
  at::Tensor c = at::rand({m, n});
  for (auto _ : state) at::mm_out(c, a, b);
  state.counters["GF/s"] = benchmark::Counter(
      2.0 * static_cast<double>(m * k * n), benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
BENCHMARK(gemm)
    ->Args({tokens, width, width})
    ->Args({tokens, width, inner})
    ->Args({tokens, inner, width})
    ->Args({tokens, width, pieces});

void norm(benchmark::State& state) {
  const at::Tensor x = at::rand({tokens, width}), w = at::rand({width});
  for (auto _ : state)
    benchmark::DoNotOptimize((state.range(0) == 1 ? kernels::norm : kernels::plain::norm)(x, w, w, 1e-5, false));
}
BENCHMARK(norm)->Arg(0)->Arg(1);

void dropout_add(benchmark::State& state) {
  const at::Tensor x = at::rand({tokens, width});
  for (auto _ : state)
    benchmark::DoNotOptimize(
        (state.range(0) == 1 ? kernels::dropout_add : kernels::plain::dropout_add)(x, x, 0.1, {1, 2, 3, 4}, {}));
}
BENCHMARK(dropout_add)->Arg(0)->Arg(1);

void attention(benchmark::State& state) {
  const std::int64_t length = state.range(1), rows = tokens / length;
  const at::Tensor packed = at::rand({rows, length, 12, 48});
  const at::Tensor q = packed.narrow(2, 0, 4), k = packed.narrow(2, 4, 4), v = packed.narrow(2, 8, 4),
                   d = at::rand_like(packed);
  at::Tensor dq = d.narrow(2, 0, 4), dk = d.narrow(2, 4, 4), dv = d.narrow(2, 8, 4);
  const kernels::AttentionMask mask{.key_lengths = {}, .segments = {}, .causal = true};
  for (auto _ : state) {
    const bool plain = state.range(0) == 0;
    const auto [out, lse] = (plain ? kernels::plain::attention : kernels::attention)(q, k, v, mask, 0.14);
    (plain ? kernels::plain::attention_backward : kernels::attention_backward)(out, q, k, v, out, lse, mask, 0.14, dq,
                                                                               dk, dv, {});
  }
}
BENCHMARK(attention)->ArgsProduct({{0, 1}, {10, 20, 50, 100}});

void head_loss(benchmark::State& state) {
  const at::Tensor h = at::rand({tokens, width}), weight = at::rand({pieces, width}), bias = at::rand({pieces});
  const at::Tensor labels = at::randint(0, pieces, {tokens}, at::kLong);
  const at::Tensor dh = at::rand({tokens, width}), dweight = at::rand({pieces, width}), dbias = at::rand({pieces});
  for (auto _ : state)
    benchmark::DoNotOptimize((state.range(0) == 1 ? kernels::head_loss : kernels::plain::head_loss)(
        h, weight, bias, labels, {.label_smoothing = 0.1, .live = pieces}, {dh, dweight, dbias}));
}
BENCHMARK(head_loss)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void adamw(benchmark::State& state) {
  constexpr std::int64_t elements = 2'350'000;  // half of the quickstart's model
  at::Tensor master = at::rand({elements}), m = at::rand({elements}), v = at::rand({elements});
  const at::Tensor gradient = at::rand({elements}), clip = at::full({1}, 0.5);
  for (auto _ : state)
    (state.range(0) == 1 ? kernels::adamw_ : kernels::plain::adamw_)(master, m, v, gradient, {}, clip, {.lr = 1e-4});
  state.SetBytesProcessed(state.iterations() * elements * 28);
}
BENCHMARK(adamw)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  argosy::kernels::keep_tensor_memory();
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
