// The runner on a virtual clock: compute and communication take set costs per FLOP and byte, and every operation runs
// when the simulation says it does.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/fixed_clock.hpp"
#include "support/replay.hpp"
#include "support/small_model.hpp"
#include "train/runner.hpp"

namespace argosy::test {
namespace {

using plan::AccumulationOrder, plan::Op, plan::OpKind, plan::Scheme, plan::Stream;

constexpr double norm_s = 1000;

/// A host that computes, and two streams next to it.
struct VirtualTime {
  FixedClock host;
  double gather_s = 0, reduce_s = 0;             // when the streams are free
  std::vector<std::pair<double, double>> moved;  // begin and end of gathers and reductions, in the order of calls
};

class VirtualEvent final : public comm::Event::State {
 public:
  VirtualEvent(VirtualTime& time, double end_s) : time_(time), end_s_(end_s) {}
  void wait(const std::stop_token&) override { time_.host.now_s = std::max(time_.host.now_s, end_s_); }
  [[nodiscard]] bool done() const noexcept override { return time_.host.now_s >= end_s_; }

 private:
  VirtualTime& time_;
  double end_s_;
};

double sum(const comm::Traffic::Bytes& bytes) { return static_cast<double>(bytes.inner + bytes.outer); }

/// Speaks for one rank of a layout, moves nothing, and takes `second_per_byte` for what it would send.
class VirtualCollectives final : public comm::Collectives {
 public:
  VirtualCollectives(VirtualTime& time, int canonical_rank, double seconds_per_byte)
      : time_(time), rank_(canonical_rank), seconds_per_byte_(seconds_per_byte) {}

  [[nodiscard]] double gather_s(const partition::FlatSpace& space, comm::Levels levels) const {
    return seconds_per_byte_ * sum(comm::all_gather_bytes(space, rank_, 4).of(levels));
  }
  [[nodiscard]] double reduce_s(const partition::FlatSpace& space, comm::Levels levels) const {
    return seconds_per_byte_ * sum(comm::reduce_scatter_bytes(space, rank_, 4, 4).of(levels));
  }

  comm::Event reduce_scatter(const partition::FlatSpace& space, comm::BufferView, comm::BufferView, comm::Event ready,
                             comm::ReduceCall call) override {
    return run(time_.reduce_s, reduce_s(space, call.levels), ready);
  }
  comm::Event all_gather(const partition::FlatSpace& space, comm::BufferView, comm::Event ready,
                         comm::Levels levels) override {
    return run(time_.gather_s, gather_s(space, levels), ready);
  }
  void all_reduce(std::span<double>) override { time_.host.now_s += norm_s; }
  void all_reduce(std::span<std::int64_t>) override {}
  [[nodiscard]] const comm::Traffic& traffic() const noexcept override { return traffic_; }
  void set_step(std::int64_t) override {}

 private:
  comm::Event run(double& stream, double seconds, const comm::Event& ready) {
    EXPECT_TRUE(ready.done());
    const double begin_s = std::max(stream, time_.host.now_s);
    stream = begin_s + seconds;
    time_.moved.emplace_back(begin_s, stream);
    return comm::Event(std::make_shared<VirtualEvent>(time_, stream));
  }

  VirtualTime& time_;
  const int rank_;
  const double seconds_per_byte_;
  comm::Traffic traffic_;
};

data::Batch rows(const spec::Architecture& shape, std::int64_t count, std::int64_t width) {
  data::Batch batch;
  batch.rows = count;
  batch.target_width = width;
  const auto ids = static_cast<std::size_t>(count * width);
  if (shape.encoder_layers > 0) {
    batch.source_width = width;
    batch.source.assign(ids, 2);
    batch.source_lengths.assign(static_cast<std::size_t>(count), width);
  }
  batch.target_input.assign(ids, shape.vocabulary.start);
  batch.target_labels.assign(ids, 2);
  batch.target_lengths.assign(static_cast<std::size_t>(count), width);
  batch.tgt_tokens = count * width;
  return batch;
}

/// Untied: embeddings and head take turns with the blocks; or tied: one unit keeps its buffers.
spec::Architecture small_model(spec::ModelType type, bool tied) {
  spec::ModelConfig config =
      model_config({.type = type, .width = 32, .ff = 64, .heads = 2, .encoder_layers = 2, .decoder_layers = 4});
  config.max_positions = 16;
  config.tie_embeddings = tied;
  return spec::resolve(config, 50);
}

/// Lets a visit take its FLOPs in seconds, forward and, twice as many, on the way back.
void take_time(model::Model& model, FixedClock& host, const std::function<double(std::size_t)>& forward_s) {
  auto& visits = const_cast<std::vector<model::Visit>&>(model.visits());
  for (std::size_t v = 0; v < visits.size(); ++v) {
    const double seconds = forward_s(visits[v].units.front());
    visits[v].forward = [real = visits[v].forward, seconds, &host](const model::State& in, const model::Inputs& inputs,
                                                                   model::Pass& pass) {
      model::State out = real(in, inputs, pass);
      host.now_s += seconds;
      out.x.register_hook([seconds, &host](const at::Tensor&) { host.now_s += 2 * seconds; });
      return out;
    };
  }
}

TEST(VirtualClock, ARunTakesExactlyTheTimeOfItsSimulation) {
  constexpr std::int64_t width = 8;
  for (const auto& [type, tied] : {std::pair{spec::ModelType::decoder, false},
                                   {spec::ModelType::decoder, true},
                                   {spec::ModelType::encoder_decoder, true}}) {
    const spec::Architecture shape = small_model(type, tied);
    for (const partition::Layout& layout : {partition::Layout({2, 2}), partition::Layout({1, 3})})
      for (const Scheme scheme : {Scheme::stage_1, Scheme::stage_2, Scheme::stage_3, Scheme::hybrid})
        for (const auto order : {AccumulationOrder::depth_first, AccumulationOrder::breadth_first})
          for (const int micro_batches : {1, 3}) {
            for (const double seconds_per_byte : {0.5, 64.0}) {  // most is hidden; nearly nothing is
              SCOPED_TRACE(fmt::format("{}, scheme {}, {}, tied {}, {} nodes of up to {}, A {}, {} s a byte",
                                       static_cast<int>(type), static_cast<int>(scheme), static_cast<int>(order), tied,
                                       layout.nodes(), layout.slots(), micro_batches, seconds_per_byte));
              model::Model model(shape, layout);
              const int rank = layout.world() - 1;
              train::Buffers buffers(model, {rank}, {.scheme = scheme, .state = optim::state_of({})});
              buffers.initialise(3);
              VirtualTime time;
              VirtualCollectives collectives(time, rank, seconds_per_byte);
              optim::SkipGuard guard({}, {});
              const auto optimizer = optim::make_optimizer({}, true, true);
              train::Runner runner(model, buffers, {comm::Group{layout, rank, collectives}}, *optimizer, 1.0, guard,
                                   time.host, c10::kCPU);
              const auto forward_s = [&](std::size_t unit) {
                return static_cast<double>(2 * width * model.units()[unit].space().parameters());
              };
              take_time(model, time.host, forward_s);
              const plan::StepPlan plan = plan::plan_step(
                  plan::plan_shape(shape, layout), {.scheme = scheme, .order = order, .micro_batches = micro_batches});
              data::StepBatches batches;
              batches.batches.assign(static_cast<std::size_t>(micro_batches), rows(shape, 1, width));
              batches.totals.tgt_tokens = layout.world() * micro_batches * width;

              const train::StepResult result = runner.run(plan, batches, {.lr = 1e-3, .loss = {}});

              const Replay expected = test::replay(
                  plan,
                  [&](const Op& op) {
                    const auto unit = static_cast<std::size_t>(op.unit);
                    switch (op.kind) {
                      case OpKind::gather:
                        return collectives.gather_s(model.units()[unit].space(), op.levels);
                      case OpKind::reduce:
                        return collectives.reduce_s(model.units()[unit].space(), op.levels);
                      case OpKind::forward:
                        return forward_s(unit);
                      case OpKind::backward:
                        return 2 * forward_s(unit);
                      case OpKind::norm:
                        return norm_s;
                      case OpKind::to_owners:
                      case OpKind::to_shards:
                      case OpKind::update:
                        break;
                    }
                    return 0.0;
                  },
                  Computes::host);
              EXPECT_EQ(time.host.now_s, expected.step_s);
              EXPECT_EQ(result.times.gather_s + result.times.reduce_s, expected.exposed_s()) << "what it waited";
              EXPECT_EQ(result.times.compute_s + result.times.norm_s, expected.compute_s);
              std::vector<std::pair<double, double>> moved;
              for (std::size_t i = 0; i < plan.ops.size(); ++i) {
                if (plan.ops[i].stream != Stream::compute)
                  moved.emplace_back(expected.ops[i].begin_s, expected.ops[i].end_s);
              }
              EXPECT_EQ(time.moved, moved);
            }
          }
  }
}

}  // namespace
}  // namespace argosy::test
