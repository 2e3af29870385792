#include "train/buffers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "kernels/tensor_memory.hpp"
#include "plan/memory_model.hpp"
#include "support/adapters.hpp"
#include "support/small_model.hpp"
#include "support/state_numbers.hpp"

namespace argosy::test {
namespace {

using plan::ReduceEvery, plan::Scheme;

const c10::Device cpu{c10::kCPU};

/// Its matrices have 4096 elements or more: their moments may be codes.
spec::ModelSpec wide() {
  spec::ModelConfig config =
      model_config({.width = 64, .ff = 96, .heads = 2, .encoder_layers = 1, .decoder_layers = 2});
  config.max_positions = 32;
  return spec::resolve(config, 50);
}

const std::vector<optim::OptimizerConfig>& optimizers() {
  static const std::vector<optim::OptimizerConfig> all{{.type = optim::OptimizerType::adafactor},
                                                       {.type = optim::OptimizerType::muon},
                                                       {.state = optim::StateType::bf16},
                                                       {.state = optim::StateType::int8},
                                                       {.state = optim::StateType::int4}};
  return all;
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
  all.emplace_back(wide());
  return all;
}

/// Bytes of all that Buffers allocates, of the fullest rank.
std::int64_t allocated(const spec::ModelSpec& shape, const partition::Layout& layout,
                       const train::BufferChoices& choices) {
  std::int64_t most = 0;
  for (int rank = 0; rank < layout.world(); ++rank) {
    model::Model model(shape, layout);
    const std::int64_t before = kernels::memory_of(cpu).bytes;
    const train::Buffers buffers(model, {rank}, choices);
    most = std::max(most, kernels::memory_of(cpu).bytes - before);
  }
  return most;
}

TEST(Buffers, AreWhatThePlannerSaysToTheByte) {
  kernels::keep_tensor_memory();
  for (const spec::ModelSpec& shape : models()) {
    for (const std::vector<int>& nodes : {std::vector{1}, {2}, {2, 2}, {1, 2}, {1, 3}, {1, 1, 2}}) {
      const partition::Layout layout(nodes);
      for (const optim::OptimizerConfig& optimizer : optimizers()) {
        const spec::StateOf state = optim::state_of(optimizer);
        for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_3})
          EXPECT_EQ(allocated(shape, layout, {.scheme = scheme, .state = state}),
                    plan::state_memory(plan::space_sizes(shape, layout, state), {.scheme = scheme, .weight_bytes = 4})
                        .state());
      }
      for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid}) {
        for (const auto& [type, master] :
             {std::pair{at::kFloat, at::kFloat}, {at::kBFloat16, at::kFloat}, {at::kBFloat16, at::kBFloat16}}) {
          for (const ReduceEvery every : {ReduceEvery::step, ReduceEvery::micro_batch}) {
            const bool elastic = every == ReduceEvery::micro_batch, ema = master == at::kFloat && nodes.size() > 1;
            if (elastic && scheme == Scheme::hybrid) continue;
            optim::OptimizerConfig optimizer;
            optimizer.ema = ema ? 0.9 : 0;
            const plan::SpaceSizes sizes = plan::space_sizes(shape, layout, optim::state_of(optimizer));
            const plan::StateMemory planned =
                plan::state_memory(sizes, {.scheme = scheme,
                                           .weight_bytes = type == at::kFloat ? 4 : 2,
                                           .master_bytes = master == at::kFloat ? 4 : 2,
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

TEST(Buffers, PackedStateHasTheSameBitsInEveryLayout) {
  const spec::ModelSpec shape = wide();
  const at::Tensor coefficient = at::full({1}, 0.5, at::kFloat);
  /// Two updates of every rank; the gradient of an element depends on its parameter and its place there.
  const auto trained = [&](const partition::Layout& layout, Scheme scheme, at::ScalarType type,
                           optim::StateType stored) {
    const optim::OptimizerConfig config{.state = stored};
    const auto optimizer = optim::make_optimizer(config, false, true);
    std::vector<double> all;
    for (int rank = 0; rank < layout.world(); ++rank) {
      model::Model model(shape, layout);
      train::Buffers buffers(model, {rank}, {.scheme = scheme, .compute_type = type, .state = optim::state_of(config)});
      buffers.initialise(3);
      std::vector<partition::FlatSpace> spaces;
      for (std::size_t u = 0; u < model.units().size(); ++u) {
        train::UnitBuffers& unit = buffers.units()[u];
        spaces.push_back(model.units()[u].space());
        for (std::int64_t t = 1; t <= 2; ++t) {
          for (const partition::Interval& own : partition::intervals_of(spaces[u], rank)) {
            const at::Tensor places = at::arange(own.begin, own.end, at::kFloat);
            unit.shard.gradient.narrow(0, own.local_offset, own.end - own.begin)
                .copy_((places * static_cast<double>(own.param + 1) + t).sin() / (places + 1));
          }
          optimizer->update(unit.pieces, unit.statistics, {.lr = 1e-3, .number = t, .coefficient = coefficient});
        }
      }
      const std::vector<double> own = numbers_of(spaces, buffers, rank);
      all.resize(own.size());
      std::transform(all.begin(), all.end(), own.begin(), all.begin(), std::plus<>{});
    }
    return all;
  };
  for (const optim::StateType stored : {optim::StateType::bf16, optim::StateType::int8, optim::StateType::int4}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const std::vector<double> alone = trained(partition::Layout{}, Scheme::stage_1, type, stored);
      for (const std::vector<int>& nodes : {std::vector{2}, {2, 2}, {1, 2}, {1, 3}})
        for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_3, Scheme::hybrid})
          EXPECT_EQ(trained(partition::Layout(nodes), scheme, type, stored), alone) << nodes.size() << " nodes";
    }
  }
}

}  // namespace
}  // namespace argosy::test
