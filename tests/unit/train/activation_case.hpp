#pragma once

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/describe/enum_to_string.hpp>
#include <limits>

#include "kernels/gemm.hpp"
#include "kernels/tensor_memory.hpp"
#include "plan/memory_model.hpp"
#include "spec/fine_tuning.hpp"
#include "support/recording.hpp"
#include "support/small_model.hpp"
#include "train/process.hpp"
#include "train/runner.hpp"

/// What a language model's micro-batch keeps, as planned and as the allocator counts it.
namespace argosy::test {

struct LanguageModel {
  std::int64_t width = 0, ff = 0, heads = 0, kv_heads = 0, layers = 0, vocab = 0, rows = 0, length = 0;
  std::vector<std::string> frozen{};  // patterns
};

/// Prints both and expects them alike. Of the second step, bf16 and with whole logits: workspaces are there then.
inline void expect_activations(const LanguageModel& sizes, plan::Recompute recompute, c10::Device device,
                               double tolerance) {
  spec::ModelConfig config = model_config({.type = spec::ModelType::decoder,
                                           .width = sizes.width,
                                           .ff = sizes.ff,
                                           .heads = sizes.heads,
                                           .decoder_layers = sizes.layers});
  config.kv_heads = sizes.kv_heads;
  config.max_positions = sizes.length;
  const spec::ModelSpec spec = spec::with_frozen(spec::resolve(config, sizes.vocab), sizes.frozen);
  const spec::Vocabulary& vocabulary = spec.architecture.vocabulary;
  const partition::Layout alone;
  model::Model model(spec, alone);
  train::Buffers buffers(model, {0}, {.compute_type = at::kBFloat16, .state = optim::state_of({}), .device = device});
  buffers.initialise(3);
  test::RecordingCollectives collectives(alone, 0);
  optim::SkipGuard guard({}, {});
  const Clock clock;
  const auto optimizer = optim::make_optimizer({}, true, true);
  train::Runner runner(model, buffers, {comm::Group{alone, 0, collectives}}, *optimizer, 1.0, guard, clock, device);
  data::StepBatches batches;
  batches.totals.tgt_tokens = sizes.rows * sizes.length;
  data::Batch& batch = batches.batches.emplace_back();
  batch.rows = sizes.rows;
  batch.target_width = sizes.length;
  batch.target_input.assign(static_cast<std::size_t>(batches.totals.tgt_tokens), vocabulary.start);
  batch.target_labels.assign(static_cast<std::size_t>(batches.totals.tgt_tokens), 2);
  batch.target_lengths.assign(static_cast<std::size_t>(sizes.rows), sizes.length);
  const plan::StepPlan plan = plan::plan_step(plan::plan_shape(spec, alone), {});
  const train::StepOptions options{
      .lr = 1e-3, .loss = {.chunk_bytes = std::numeric_limits<std::int64_t>::max()}, .recompute = recompute};
  (void)runner.run(plan, batches, options);
  const std::int64_t before = kernels::memory_of(device).bytes;
  kernels::reset_peak(device);
  (void)runner.run(plan, batches, options);
  const auto positions = static_cast<double>(batches.totals.tgt_tokens);
  const plan::Gpu* const gpu = train::planned_gpu(device);
  const plan::ActivationMemory planned =
      plan::activation_memory(spec, {.target_positions = positions, .target_width = static_cast<double>(sizes.length)},
                              {.recompute = recompute, .multiprocessors = gpu != nullptr ? gpu->multiprocessors : 0});
  const double measured_bytes = static_cast<double>(kernels::memory_of(device).peak_bytes - before),
               planned_bytes = planned.total();
  const std::string name = boost::describe::enum_to_string(recompute, "");
  fmt::print("recompute {:<10}  planned {:>12.0f} bytes, measured {:>12.0f}\n", name, planned_bytes, measured_bytes);
  // The published formula of `full` leaves out the block whose inner values exist while they are used again.
  const double inner = 2.0 * 3 * static_cast<double>(sizes.ff) * positions,
               again = recompute == plan::Recompute::full ? std::max(0.0, inner - planned.attention) : 0;
  // Two packed copies of the head's matrix, which such processors have in fp32.
  const bool widens =
      device.is_cpu() && kernels::pack_matrix(at::zeros({1, 1}, at::kBFloat16)).data.element_size() == 4;
  const double wider = widens ? 2.0 * 2 * static_cast<double>(sizes.vocab * sizes.width) : 0;
  EXPECT_GE(measured_bytes, planned_bytes + again - tolerance * planned_bytes) << name;
  EXPECT_LE(measured_bytes, planned_bytes + again + tolerance * planned_bytes + wider) << name;
}

/// At every level.
inline void expect_activations(const LanguageModel& sizes, c10::Device device, double tolerance) {
  using enum plan::Recompute;
  for (const plan::Recompute level : {none, activation, full, block})
    expect_activations(sizes, level, device, tolerance);
}

}  // namespace argosy::test
