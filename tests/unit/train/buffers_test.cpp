#include "train/buffers.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "plan/memory_model.hpp"
#include "support/adapters.hpp"
#include "support/factored.hpp"
#include "support/small_model.hpp"
#include "train/memory_count.hpp"

namespace argosy::test {
namespace {

using plan::ReduceEvery, plan::Scheme;

const c10::Device cpu{c10::kCPU};

TEST(MemoryCount, FollowsTensorsAndTheirPeak) {
  train::count_memory();
  const std::int64_t before = train::memory_of(cpu).bytes;
  {
    const at::Tensor kept = at::empty({1000}, at::kFloat);
    train::reset_peak(cpu);
    EXPECT_EQ(train::memory_of(cpu).bytes, before + 4000);
    (void)at::empty({250}, at::kDouble);
    EXPECT_EQ(train::memory_of(cpu).bytes, before + 4000);
    EXPECT_EQ(train::memory_of(cpu).peak_bytes, before + 6000);
    train::reset_peak(cpu);
    EXPECT_EQ(train::memory_of(cpu).peak_bytes, before + 4000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(kept.data_ptr()) % 64, 0U) << "as LibTorch's kernels expect";
  }
  EXPECT_EQ(train::memory_of(cpu).bytes, before);
}

/// Tied: the embedding is visited three times. Else the embeddings take turns, or are larger than a block. Then such
/// models of which only adapters are trained.
std::vector<spec::ModelSpec> models() {
  std::vector<spec::ModelSpec> all;
  for (const auto& [tied, vocab] : {std::pair{true, 50}, {false, 50}, {false, 3000}}) {
    spec::ModelConfig config =
        model_config({.width = 32, .ff = 48, .heads = 2, .encoder_layers = 2, .decoder_layers = 3});
    config.max_positions = 32;
    config.tie_embeddings = tied;
    all.emplace_back(spec::resolve(config, vocab));
  }
  all.push_back(with_adapters(all[1].architecture));  // frozen units, which take turns or not
  all.push_back(with_adapters(all[2].architecture));
  return all;
}

/// Bytes of all that Buffers allocates, of the fullest rank.
std::int64_t allocated(const spec::ModelSpec& shape, const partition::Layout& layout,
                       const train::BufferChoices& choices) {
  std::int64_t most = 0;
  for (int rank = 0; rank < layout.world(); ++rank) {
    model::Model model(shape, layout);
    const std::int64_t before = train::memory_of(cpu).bytes;
    const train::Buffers buffers(model, {rank}, choices);
    most = std::max(most, train::memory_of(cpu).bytes - before);
  }
  return most;
}

TEST(Buffers, AreWhatThePlannerSaysToTheByte) {
  train::count_memory();
  for (const spec::ModelSpec& shape : models()) {
    for (const std::vector<int>& nodes : {std::vector{1}, {2}, {2, 2}, {1, 2}, {1, 3}, {1, 1, 2}}) {
      const partition::Layout layout(nodes);
      const plan::SpaceSizes sizes = plan::space_sizes(shape, layout);
      const std::vector<spec::StateTensor> factored = Factored::state();
      EXPECT_EQ(allocated(shape, layout, {.state = factored}),
                plan::state_memory(plan::space_sizes(shape, layout, factored), {.weight_bytes = 4, .state_bytes = 0})
                    .state());
      for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
        for (const auto& [type, master] :
             {std::pair{at::kFloat, at::kFloat}, {at::kBFloat16, at::kFloat}, {at::kBFloat16, at::kBFloat16}}) {
          for (const ReduceEvery every : {ReduceEvery::step, ReduceEvery::micro_batch}) {
            const bool elastic = every == ReduceEvery::micro_batch, ema = master == at::kFloat && nodes.size() > 1;
            if (elastic && scheme == Scheme::hybrid) continue;
            optim::OptimizerConfig optimizer;
            optimizer.ema = ema ? 0.9 : 0;
            const plan::StateMemory planned =
                plan::state_memory(sizes, {.scheme = scheme,
                                           .weight_bytes = type == at::kFloat ? 4 : 2,
                                           .master_bytes = master == at::kFloat ? 4 : 2,
                                           .state_bytes = ema ? 12 : 8,
                                           .reduction = elastic ? comm::Reduction::elastic : comm::Reduction::exact});
            EXPECT_EQ(allocated(shape, layout,
                                {.scheme = scheme,
                                 .reduce_every = every,
                                 .compute_type = type,
                                 .master_type = master,
                                 .state = optim::state_of(optimizer)}),
                      planned.state())
                << "scheme " << static_cast<int>(scheme) << ", " << layout.world() << " ranks on " << nodes.size()
                << " nodes, " << (type == at::kFloat ? "fp32" : "bf16") << (master == type ? " as master" : "")
                << (elastic ? ", elastic" : "") << ", resident " << sizes.resident.padded;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace argosy::test
