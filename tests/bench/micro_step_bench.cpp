#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "kernels/memory.hpp"
#include "model/model.hpp"
#include "unit/model/support.hpp"

// Times one micro-step (forward and backward, no optimizer) of the quickstart's model on one thread:
//   micro_step [repeats] [rows] [source width] [target width]
// Prints the least time of each visit and of the whole, GF/s, tgt_tokens/s and page faults of the last step.

namespace {

using namespace argosy;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

struct Bench {
  model::Model& model;
  model::Inputs inputs;
  std::vector<double> forward, backward;

  void step(std::int64_t number) {
    for (model::Unit& unit : model.units()) unit.expect_fresh_gradients();
    model::Pass pass;
    pass.training = true;
    pass.step = number;
    pass.loss.label_smoothing = 0.1;
    pass.loss_scale = 1.0 / static_cast<double>(inputs.target_labels.numel());
    std::vector<model::State> before, after;
    const auto& visits = model.visits();
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const auto begin = Clock::now();
      before.push_back(test::detached(i == 0 ? model::State{} : after.back()));
      after.push_back(visits[i].forward(before.back(), inputs, pass));
      forward[i] = std::min(forward[i], seconds_since(begin));
    }
    at::Tensor dx, dmemory;
    for (std::size_t i = visits.size(); i-- > 0;) {
      const auto begin = Clock::now();
      test::back_up(visits[i], before[i], after[i], dx, dmemory);
      backward[i] = std::min(backward[i], seconds_since(begin));
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  kernels::keep_freed_memory();
  at::set_num_threads(1);
  const std::int64_t repeats = argument(1, 40), rows = argument(2, 35), source = argument(3, 13),
                     target = argument(4, 15);
  spec::ModelConfig config;
  config.preset = spec::Preset::mt_small;
  config.norm_position = spec::NormPosition::pre;
  const spec::Architecture shape = resolve(config, 8000);
  const test::BoundModel bound(shape);
  model::Model& model = *bound.model;
  Bench bench{
      model, {}, std::vector<double>(model.visits().size(), 1e9), std::vector<double>(model.visits().size(), 1e9)};
  const auto ids = [&](std::int64_t width) {
    return at::randint(0, shape.vocabulary.pieces, {rows, width}, at::kLong);
  };
  bench.inputs.source = ids(source);
  bench.inputs.source_lengths = at::full({rows}, source, at::kLong);
  bench.inputs.target_in = ids(target);
  bench.inputs.target_labels = ids(target);
  bench.inputs.target_lengths = at::full({rows}, target, at::kLong);

  double best = 1e9;
  long faults = 0;
  for (std::int64_t i = 0; i < repeats; ++i) {
    const long before = page_faults();
    const auto begin = Clock::now();
    bench.step(i);
    best = std::min(best, seconds_since(begin));
    faults = page_faults() - before;
  }
  for (std::size_t i = 0; i < model.visits().size(); ++i)
    fmt::print("{:<10} forward {:7.2f} ms  backward {:7.2f} ms\n", model.visits()[i].name, bench.forward[i] * 1e3,
               bench.backward[i] * 1e3);
  const auto d = static_cast<double>(shape.width), ff = static_cast<double>(shape.ff);
  const auto src_tokens = static_cast<double>(rows * source), tgt_tokens = static_cast<double>(rows * target);
  const double layers = static_cast<double>(shape.encoder_layers);
  const double flops = 6 * (layers * (src_tokens * (6 * d * d + 2 * d * ff) + tgt_tokens * (6 * d * d + 2 * d * ff)) +
                            tgt_tokens * d * static_cast<double>(shape.vocabulary.pieces));
  fmt::print("step {:.2f} ms, {:.1f} GF/s in GEMMs, {:.0f} tgt_tokens/s, {} page faults\n", best * 1e3,
             flops / best * 1e-9, tgt_tokens / best, faults);
}
