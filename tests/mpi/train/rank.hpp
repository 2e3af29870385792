#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "comm/collectives.hpp"
#include "core/random.hpp"
#include "data/batcher.hpp"
#include "model/layers.hpp"
#include "model/segment.hpp"
#include "plan/traffic_model.hpp"
#include "support/adapters.hpp"
#include "support/checkpoints.hpp"
#include "support/mpi_test.hpp"
#include "support/recording.hpp"
#include "support/shared_folder.hpp"
#include "support/small_model.hpp"
#include "support/state_numbers.hpp"
#include "train/host_state.hpp"
#include "train/runner.hpp"

/// A rank of a layout with a small model and all it needs for steps, for tests of training.
namespace argosy::test {

/// Tied: one unit is visited three times. Else the embeddings and the head are units of their own, as large as a block
/// or smaller.
inline spec::Architecture small_shape(double dropout = 0, bool tie_embeddings = true, bool bias = true) {
  spec::ModelConfig config =
      model_config({.width = 32, .ff = 48, .heads = 2, .encoder_layers = 1, .decoder_layers = 2});
  config.vocab_multiple = 8;
  config.max_positions = 32;
  config.dropout = dropout;
  config.tie_embeddings = tie_embeddings;
  config.bias = bias;
  return spec::resolve(config, 23);
}

/// Ids of rows to copy, of lengths that differ between rows and streams.
using Rows = std::vector<std::vector<std::int32_t>>;
inline Rows copy_rows(const spec::Architecture& shape, std::uint64_t stream, std::int64_t count) {
  RandomStream random(5, stream);
  Rows rows(static_cast<std::size_t>(count));
  std::size_t width = 0;
  for (auto& row : rows) {
    row.resize(2 + random.below(6));
    width = std::max(width, row.size());
  }
  for (auto& row : rows) {
    for (std::size_t t = 0; t < width; ++t) {
      if (t + 1 == row.size()) continue;
      const std::uint64_t id = 2 + random.below(static_cast<std::uint64_t>(shape.vocabulary.pieces) - 2);
      if (t < row.size()) row[t] = static_cast<std::int32_t>(id);
    }
    row.back() = static_cast<std::int32_t>(shape.vocabulary.eos);
  }
  return rows;
}

/// Rows whose target is their source.
inline data::Batch batch_of(const spec::Architecture& shape, const Rows& rows) {
  std::vector<data::PairIds> examples;
  for (const auto& row : rows) examples.push_back({.source = row, .target = row});
  return data::batch_of_pairs(examples, shape.vocabulary);
}

inline data::Batch copy_batch(const spec::Architecture& shape, std::uint64_t stream, std::int64_t rows) {
  return batch_of(shape, copy_rows(shape, stream, rows));
}

/// Micro-batches of a step, of different sizes; where there are more than one, one has no examples.
inline std::vector<data::Batch> uneven_batches(const spec::Architecture& shape, int count, std::uint64_t step) {
  std::vector<data::Batch> batches;
  for (int j = 0; j < count; ++j)
    batches.push_back(j == 1 ? data::Batch{}
                             : copy_batch(shape, 100 * step + static_cast<std::uint64_t>(j), 1 + j % 3));
  return batches;
}

/// A model whose decoder blocks all add one vector to their input, as the blocks of T5 share a bias: a unit that
/// several visits read next to their own.
inline spec::ModelSpec with_shared_bias(const spec::Architecture& architecture) {
  spec::ModelSpec spec(architecture);
  const spec::Parameter bias{{"decoder/shared_bias", {architecture.width}, false}, spec::Role::linear_bias};
  spec.units.push_back({"decoder.shared", {bias}});
  for (spec::Visit& visit : spec.visits)
    if (visit.kind == spec::VisitKind::decoder_block) visit.units.push_back(spec.units.size() - 1);
  return spec;
}

/// The code of such a model; any other stays as it is.
inline void use_shared_bias(model::Model& model) {
  for (model::Visit& visit : model.visits()) {
    if (visit.units.size() < 2 || model.units()[visit.units[1]].name() != "decoder.shared") continue;
    model::Parameter& bias = model.units()[visit.units[1]].parameters().front();
    put_before(
        visit, [&bias](const at::Tensor& x) { return x + bias.weight; },
        [&bias](const at::Tensor& /*x*/, const at::Tensor& g) {
          add_gradient(bias, g.to(at::kFloat).sum(at::IntArrayRef{0, 1}));
          return g;
        });
  }
}

/// How a rank trains.
struct Training {
  plan::Scheme scheme = plan::Scheme::stage_1;
  plan::AccumulationOrder order = plan::AccumulationOrder::depth_first;
  plan::ReduceEvery reduce_every = plan::ReduceEvery::step;
  at::ScalarType type = at::kFloat, master = at::kFloat;
  plan::Recompute recompute = plan::Recompute::none;
  optim::OptimizerConfig optimizer{};
  model::LossOptions loss{.label_smoothing = 0.1};
  bool normalise_by_component = false;
};

inline std::string text_of(const Training& training) {
  return boost::describe::enum_to_string(training.scheme, "") + std::string(" ") +
         boost::describe::enum_to_string(training.order, "") +
         (training.type == at::kFloat     ? " fp32"
          : training.master == at::kFloat ? " bf16"
                                          : " bf16_pure");
}

/// fp32; bf16 with an fp32 master; bf16 without.
struct Types {
  at::ScalarType weights, master;
};
inline constexpr std::array all_types{Types{at::kFloat, at::kFloat}, Types{at::kBFloat16, at::kFloat},
                                      Types{at::kBFloat16, at::kBFloat16}};

inline constexpr std::array all_schemes{plan::Scheme::stage_1, plan::Scheme::stage_2, plan::Scheme::stage_3,
                                        plan::Scheme::hybrid};

/// Of a rank alone: nothing has to move.
inline comm::Collectives& nobody() {
  static RecordingCollectives none{partition::Layout{}, 0};
  return none;
}

class Rank {
 public:
  /// One rank alone.
  explicit Rank(const spec::ModelSpec& spec, const Training& training = {})
      : Rank(spec, partition::Layout{}, 0, nobody(), training) {}
  /// spec: may be test::with_shared_bias().
  /// parts: the groups of components 1, 2, …
  Rank(const spec::ModelSpec& spec, const partition::Layout& layout, int canonical_rank, comm::Collectives& collectives,
       const Training& training = {}, const std::vector<std::optional<comm::Group>>& parts = {})
      : training_(training),
        layout_(layout),
        canonical_rank_(canonical_rank),
        groups_(groups_of({layout_, canonical_rank, collectives}, parts, spec.components.size())),
        plan_shape_(shape_of(spec, layout, training)),
        model_(spec, layouts()),
        buffers_(model_, ranks(),
                 {.scheme = training.scheme,
                  .reduce_every = training.reduce_every,
                  .compute_type = training.type,
                  .master_type = training.master,
                  .seed = 9,
                  .state = optim::state_of(training.optimizer)}),
        guard_(training.optimizer.skip, {}),
        optimizer_(optim::make_optimizer(training.optimizer, false, training.master == at::kFloat)),
        runner_(model_, buffers_, groups_, *optimizer_, optim::max_grad_norm_of(training.optimizer), guard_, clock_,
                c10::kCPU) {
    buffers_.initialise(3);
    use_shared_bias(model_);
  }

  /// routes: of the micro-batches of all ranks (data::StepBatches::routes); empty: there is one.
  [[nodiscard]] plan::StepPlan plan(int micro_batches, const std::vector<int>& routes = {}) const {
    plan::PlanChoices choices{.scheme = training_.scheme,
                              .order = training_.order,
                              .reduce_every = training_.reduce_every,
                              .micro_batches = micro_batches,
                              .idle = idle};
    if (!routes.empty())
      choices.slots = plan::slots_of(routes, data::deal(routes, {.world = layout_.world()}), canonical_rank_);
    return plan::plan_step(plan_shape_, choices);
  }

  std::function<void()> before_update;  // of the steps
  std::set<std::size_t> idle;           // components that the next step leaves out
  std::size_t corpora = 0;              // that micro-batches have examples of, if they say so

  /// A step over `micro_batches` of all ranks, of which this one takes its share.
  train::StepResult step(const std::vector<data::Batch>& micro_batches, double lr) {
    const int world = layout_.world(), accumulation = (static_cast<int>(micro_batches.size()) + world - 1) / world;
    data::StepBatches batches;
    batches.passes.resize(corpora);
    batches.batches.resize(static_cast<std::size_t>(accumulation));
    const bool has_routes = model_.spec().routes.size() > 1;
    for (std::size_t j = 0; j < micro_batches.size(); ++j) {
      if (has_routes)
        batches.routes.push_back(micro_batches[j].empty() ? -1 : static_cast<int>(micro_batches[j].route));
      batches.totals.tgt_tokens += micro_batches[j].tgt_tokens;
      if (static_cast<int>(j) % world == canonical_rank_)
        batches.batches[j / static_cast<std::size_t>(world)] = micro_batches[j];
    }
    batches.dealt = data::deal(std::vector<int>(micro_batches.size()), {.world = world});
    ++steps_;
    if (has_routes) idle = model_.spec().idle_components(batches.routes);
    const train::StepResult result = runner_.run(plan(accumulation, batches.routes), batches,
                                                 {.step = steps_,
                                                  .updates = updates_of_next(),
                                                  .lr = lr,
                                                  .seed = 9,
                                                  .normalise_by_component = training_.normalise_by_component,
                                                  .loss = training_.loss,
                                                  .recompute = training_.recompute,
                                                  .before_update = before_update});
    if (!result.skipped) updates_ = updates_of_next();
    return result;
  }

  /// Σ nll over the ranks' batches. **Collective.**
  [[nodiscard]] double evaluate(const data::Batch& batch) {
    std::vector<double> sum{runner_.evaluate(plan::plan_forward(plan_shape_, training_.scheme), batch, {})};
    if (layout_.world() > 1) world().all_reduce(std::span<double>{sum});
    return sum[0];
  }

  /// Puts NaN wherever a step has to write before it reads: in all gradients, and in weights but for the own slices.
  void poison() {
    for (std::size_t u = 0; u < model_.units().size(); ++u) {
      const train::UnitBuffers& buffers = buffers_.units()[u];
      const double nan = std::numeric_limits<double>::quiet_NaN();
      if (buffers.rotates_gradients) buffers.gradients.fill_(nan);
      if (buffers.held_gradients.defined()) buffers.held_gradients.fill_(nan);
      if (buffers.rotates_weights) buffers.weights.fill_(nan);
      if (buffers.is_frozen()) continue;
      if (!buffers.sums_in_place) buffers.shard.gradient.fill_(nan);
      for (const model::Parameter& parameter : model_.units()[u].parameters()) parameter.gradient.fill_(nan);
      const partition::FlatSpace& space = model_.units()[u].space();
      for (int slice = 0; slice < space.slices() && !buffers.rotates_weights; ++slice) {
        if (space.owner(slice) != rank_of(u))
          buffers.weights.narrow(0, space.slice_begin(slice), space.slice_size()).fill_(nan);
      }
    }
  }

  /// The gradient of the last step, all units end to end, from the shards of all ranks. **Collective.**
  [[nodiscard]] std::vector<double> gradient() {
    return all_of([](const optim::ShardState& shard) { return shard.gradient; });
  }
  /// Of AdamW. **Collective.**
  [[nodiscard]] std::vector<double> first_moments() {
    return all_of([](const optim::ShardState& shard) {
      return shard.states.empty() ? at::Tensor() : shard.states.front().numbers;
    });
  }
  /// The master weights likewise; gaps, which differ between layouts, are left out. **Collective.**
  [[nodiscard]] std::vector<double> weights() {
    return all_of([](const optim::ShardState& shard) { return shard.master; });
  }
  /// Their running mean likewise. **Collective.**
  [[nodiscard]] std::vector<double> ema() {
    return all_of([](const optim::ShardState& shard) { return shard.ema; });
  }
  [[nodiscard]] train::Buffers& buffers() noexcept { return buffers_; }
  [[nodiscard]] model::Model& model() noexcept { return model_; }
  [[nodiscard]] std::vector<partition::FlatSpace> spaces() {
    std::vector<partition::FlatSpace> spaces;
    for (const model::Unit& unit : model_.units()) spaces.push_back(unit.space());
    return spaces;
  }
  /// What the plan of a step in fp32 says that a rank sends, in bytes.
  [[nodiscard]] std::int64_t planned_bytes(int micro_batches) {
    const comm::Reduction reduction = comm::Reduction::exact;
    return plan::planned_traffic(plan(micro_batches), spaces(), {.weight = 4}, reduction).rank();
  }

 private:
  static plan::PlanShape shape_of(const spec::ModelSpec& spec, const partition::Layout& layout,
                                  const Training& training) {
    return plan::plan_shape(spec, layout, optim::whole_units(training.optimizer, spec));
  }
  using Groups = std::vector<std::optional<comm::Group>>;
  static Groups groups_of(const comm::Group& all, const Groups& parts, std::size_t components) {
    Groups groups{all};
    for (const auto& part : parts) groups.push_back(part);
    while (groups.size() < components) groups.push_back(all);
    return groups;
  }
  [[nodiscard]] std::vector<partition::Layout> layouts() const {
    std::vector<partition::Layout> layouts;
    for (const auto& group : groups_) layouts.push_back(group ? group->layout : partition::Layout{});
    return layouts;
  }
  [[nodiscard]] std::vector<int> ranks() const {
    std::vector<int> ranks;
    for (const auto& group : groups_) ranks.push_back(group ? group->canonical_rank : -1);
    return ranks;
  }
  [[nodiscard]] std::vector<std::int64_t> updates_of_next() const {
    std::vector<std::int64_t> updates = updates_;
    updates.resize(groups_.size());
    for (std::size_t c = 0; c < updates.size(); ++c) updates[c] += idle.contains(c) ? 0 : 1;
    return updates;
  }
  [[nodiscard]] int rank_of(std::size_t unit) const {
    return groups_[model_.spec().units[unit].component]->canonical_rank;
  }
  template <class Of>
  std::vector<double> all_of(Of of) {
    std::vector<double> all;
    for (std::size_t u = 0; u < model_.units().size(); ++u) {
      const partition::FlatSpace& space = model_.units()[u].space();
      std::vector<std::size_t> begins;
      std::size_t end = all.size();
      for (const partition::ParamSpec& param : space.params()) {
        begins.push_back(end);
        end += static_cast<std::size_t>(param.numel());
      }
      all.resize(end);
      const at::Tensor values = of(buffers_.units()[u].shard);
      if (!values.defined()) continue;  // frozen, or of a component without this rank
      const at::Tensor shard = values.to(at::kFloat).contiguous();
      for (const partition::Interval& own : partition::intervals_of(space, rank_of(u)))
        std::copy_n(shard.const_data_ptr<float>() + own.local_offset, own.end - own.begin,
                    all.begin() + static_cast<std::ptrdiff_t>(begins[own.param]) + own.begin);
    }
    if (layout_.world() > 1) world().all_reduce(std::span<double>{all});
    return all;
  }

  const Training training_;
  const partition::Layout layout_;
  const int canonical_rank_;
  const Groups groups_;
  const plan::PlanShape plan_shape_;
  model::Model model_;
  train::Buffers buffers_;
  optim::SkipGuard guard_;
  Clock clock_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  train::Runner runner_;
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> updates_;  // by component
};

inline double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

/// |a - b| / |b|, of all elements.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    squares += b[i] * b[i];
    differences += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(differences / squares);
}

inline double largest_change(const std::vector<double>& before, const std::vector<double>& after) {
  double most = 0;
  for (std::size_t i = 0; i < before.size(); ++i) most = std::max(most, std::abs(after[i] - before[i]));
  return most;
}

/// Tests of ranks that are spread over nodes.
class OnRanks : public testing::TestWithParam<Hierarchy> {
 protected:
  const comm::Topology& topology_ = topology(GetParam());
  const std::unique_ptr<comm::Collectives> collectives_ = comm::make_mpi_collectives(topology_);
  [[nodiscard]] int me() const { return topology_.canonical_rank(); }
  [[nodiscard]] const partition::Layout& layout() const { return topology_.layout(); }
  [[nodiscard]] Rank rank_of(const spec::ModelSpec& spec, const Training& training = {}) const {
    return {spec, layout(), me(), *collectives_, training};
  }
};

/// Takes the same steps with one rank alone and with all, whose losses may differ by `bound` of themselves. Returns
/// what the weights were before.
inline std::vector<double> train_both(Rank& alone, Rank& shared, int steps, double lr,
                                      double bound = std::numeric_limits<double>::infinity()) {
  const std::vector<double> initial = alone.weights();
  const std::vector<data::Batch> batches = uneven_batches(alone.model().spec().architecture, 4, 1);
  for (int step = 0; step < steps; ++step) {
    if (step > 0) shared.poison();
    const train::StepResult one = alone.step(batches, lr), many = shared.step(batches, lr);
    EXPECT_NEAR(one.loss_sum, many.loss_sum, bound * one.loss_sum);
    EXPECT_NEAR(one.grad_norm, many.grad_norm, 100 * bound * one.grad_norm);
  }
  return initial;
}

/// Checkpoints of what ranks hold. **Collective**, begin and end.
class RankStore {
 public:
  explicit RankStore(Hierarchy hierarchy) : context_(os_, world(), hierarchy) {}
  /// **Collective.**
  checkpoint::Reader save(Rank& rank, checkpoint::Kind kind = checkpoint::Kind::temp) {
    train::HostState host{rank.model(), rank.buffers(), at::kCPU};
    host.complete_copy();
    const std::vector<checkpoint::UnitState> states = host.states(kind == checkpoint::Kind::temp);
    const checkpoint::SaveReport report = store_.save(kind, 2, states, toy_sections(), toy_attachments());
    EXPECT_TRUE(report.committed) << report.why_not;
    return {Files::system(), report.directory};
  }

 private:
  SharedFolder folder_;
  Os os_;
  TestContext context_;
  checkpoint::Store store_{context_.get(), folder_ / "run", {}};
};

/// Gives a rank what a checkpoint holds for it.
inline void load(Rank& rank, const checkpoint::Reader& reader, int canonical_rank = 0) {
  train::HostState host{rank.model(), rank.buffers(), at::kCPU};
  reader.read_state(host.states(), canonical_rank);
  host.load();
}

/// Expects that the gradient of these elements of the last unit is the slope of the loss.
inline void expect_slopes(const spec::ModelSpec& spec, std::initializer_list<std::int64_t> elements) {
  Training training;
  training.optimizer.max_grad_norm = 0;
  const auto batches = uneven_batches(spec.architecture, 1, 1);
  const auto loss_with = [&](std::int64_t element, float shift, at::Tensor* gradient = nullptr) {
    Rank rank{spec, training};
    const train::UnitBuffers& unit = rank.buffers().units().back();
    unit.shard.master[element] += shift;
    const double loss = rank.step(batches, 0).loss_sum;
    if (gradient != nullptr) *gradient = unit.shard.gradient.clone();
    return loss / static_cast<double>(batches.front().tgt_tokens);
  };
  at::Tensor gradient;
  (void)loss_with(0, 0, &gradient);
  for (const std::int64_t element : elements) {
    constexpr float shift = 0.01F;
    const double slope = (loss_with(element, shift) - loss_with(element, -shift)) / (2 * shift);
    EXPECT_NEAR(gradient[element].item<double>(), slope, 0.03 * std::abs(slope) + 1e-4) << element;
    EXPECT_GT(std::abs(slope), 1e-4) << element;
  }
}

/// What the reductions and gathers of each rank have sent, in bytes. **Collective.**
inline std::vector<double> sent_by_rank(const comm::Collectives& collectives) {
  std::vector<double> bytes(static_cast<std::size_t>(world().size()));
  for (const char* const operation : {"reduce_scatter", "all_gather"}) {
    const auto found = collectives.traffic().by_operation.find(operation);
    if (found == collectives.traffic().by_operation.end()) continue;
    bytes[static_cast<std::size_t>(world().rank())] += static_cast<double>(found->second.inner + found->second.outer);
  }
  world().all_reduce(std::span<double>{bytes});
  return bytes;
}

}  // namespace argosy::test
