#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <boost/describe/enum_to_string.hpp>

#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

using spec::Activation, spec::NormPosition, spec::Recompute;

std::string name_of(auto value) { return boost::describe::enum_to_string(value, "?"); }

/// Each visit but the head without recording first, and once more from its input before its backward pass.
double run_micro_batch_by_block(model::Model& model, const model::Inputs& inputs) {
  const std::vector<model::Visit>& visits = model.visits();
  model::Pass pass = training_pass(Recompute::block);
  std::vector<model::State> before;
  model::State state;
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i + 1 < visits.size(); ++i) {
      before.push_back(state);
      state = visits[i].forward(state, inputs, pass);
    }
  }
  before.push_back(state);
  double loss = 0;
  at::Tensor dx, dmemory;
  for (std::size_t i = visits.size(); i-- > 0;) {
    const model::State in = detached(before[i]);
    const model::State out = visits[i].forward(in, inputs, pass);
    if (i + 1 == visits.size()) loss = out.x.item<double>();
    back_up(visits[i], in, out, dx, dmemory);
  }
  return loss;
}

/// At this level.
double run_micro_batch_at(Recompute level, model::Model& model, const model::Inputs& inputs) {
  if (level == Recompute::block) return run_micro_batch_by_block(model, inputs);
  model::Pass pass = training_pass(level);
  return run_micro_batch(model, inputs, pass);
}

class EachActivation : public testing::TestWithParam<std::tuple<Activation, NormPosition, double, at::ScalarType>> {};

TEST_P(EachActivation, RecomputeLeavesAllBits) {
  at::ScalarType type{};
  for (spec::Architecture shape : {tiny_translation(), tiny_language_model()}) {
    std::tie(shape.activation, shape.norm_position, shape.dropout, type) = GetParam();
    shape.neftune_alpha = 20 * shape.dropout;
    const model::Inputs inputs = ragged_inputs(shape);
    BoundModel reference(shape, type);
    const double loss = run_micro_batch_at(Recompute::none, *reference.model, inputs);
    for (const Recompute level : {Recompute::activation, Recompute::full, Recompute::block}) {
      SCOPED_TRACE(name_of(shape.activation) + " " + name_of(shape.norm_position) + " " + name_of(level));
      BoundModel bound(shape, type);
      EXPECT_EQ(run_micro_batch_at(level, *bound.model, inputs), loss);
      expect_gradients_near(bound, reference, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachActivation,
                         testing::Combine(testing::Values(Activation::relu, Activation::gelu, Activation::swish,
                                                          Activation::swiglu, Activation::geglu),
                                          testing::Values(NormPosition::pre, NormPosition::post),
                                          testing::Values(0.0, 0.3), testing::Values(at::kFloat, at::kBFloat16)));

TEST(Recompute, LeavesAllBitsOfT5) {
  const spec::Architecture shape = tiny_t5();
  const model::Inputs inputs = ragged_inputs(shape);
  BoundModel reference(shape);
  const double loss = run_micro_batch_at(Recompute::none, *reference.model, inputs);
  for (const Recompute level : {Recompute::activation, Recompute::full, Recompute::block}) {
    BoundModel bound(shape);
    EXPECT_EQ(run_micro_batch_at(level, *bound.model, inputs), loss);
    expect_gradients_near(bound, reference, 0);
  }
}

TEST(Recompute, BlocksBesideFrozenEmbeddingsGetTheirGradients) {
  for (const bool tied : {true, false}) {
    spec::Architecture shape = tiny_translation();
    shape.tie_embeddings = shape.tie_inputs = tied;
    const model::Inputs inputs = ragged_inputs(shape);
    BoundModel free(shape);
    run_micro_batch_at(Recompute::none, *free.model, inputs);
    for (const Recompute level : {Recompute::none, Recompute::activation, Recompute::full, Recompute::block}) {
      BoundModel frozen(shape);
      for (model::Unit& unit : frozen.model->units())
        if (unit.name().find("embedding") != std::string::npos) unit.bind_gradients({});
      run_micro_batch_at(level, *frozen.model, inputs);
      for (model::Unit& unit : frozen.model->units()) EXPECT_EQ(unit.without_gradient(), nullptr);
      SCOPED_TRACE(name_of(level));
      expect_gradients_near(free, frozen, 0);
    }
  }
}

TEST(Recompute, ATrainableParameterWithoutGradientIsNamed) {
  BoundModel bound(tiny_language_model());
  model::Unit& unit = bound.model->units()[1];
  ASSERT_NE(unit.without_gradient(), nullptr);
  EXPECT_EQ(unit.without_gradient()->name, unit.parameters().front().name);
  for (model::Parameter& parameter : unit.parameters()) parameter.gradient_written = true;
  EXPECT_EQ(unit.without_gradient(), nullptr);
  unit.parameters().back().gradient_written = false;
  EXPECT_EQ(unit.without_gradient(), &unit.parameters().back());
  unit.bind_gradients({});
  EXPECT_EQ(unit.without_gradient(), nullptr) << "frozen";
}

/// Bytes of tensors that live, by this thread's allocations.
struct LiveBytes : c10::MemoryReportingInfoBase {
  std::int64_t live = 0;
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override { live += size; }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
};

/// What the first block's forward pass leaves for its backward pass, its output included, in bytes a position.
std::int64_t kept_bytes(const spec::Architecture& shape, at::ScalarType type, Recompute level, bool recording) {
  BoundModel bound(shape, type);
  const model::Inputs inputs = ragged_inputs(shape);
  model::Pass pass = training_pass(level);
  const c10::AutoGradMode mode(recording);
  const model::State state = bound.model->visits()[0].forward({}, inputs, pass);
  (void)bound.model->visits()[1].forward(state, inputs, pass);  // what a model makes once, such as rotary waves
  const auto bytes = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard counted(c10::DebugInfoKind::PROFILER_STATE, bytes);
  const model::State after = bound.model->visits()[1].forward(state, inputs, pass);
  EXPECT_EQ(bytes->live % inputs.target_in.numel(), 0);
  return bytes->live / inputs.target_in.numel();
}

TEST(Recompute, KeepsWhatTheFormulaSays) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto size = static_cast<std::int64_t>(c10::elementSize(type));
    for (const auto& [activation, position] : {std::pair{Activation::relu, spec::Position::rope},
                                               {Activation::gelu, spec::Position::alibi},
                                               {Activation::swiglu, spec::Position::learned},
                                               {Activation::geglu, spec::Position::t5}}) {
      spec::Architecture shape = tiny_language_model();
      shape.activation = activation;
      shape.decoder_position = position;
      const auto kept = [&](Recompute level) { return kept_bytes(shape, type, level, true); };
      const bool gated = spec::is_gated(activation);
      const std::int64_t none = kept(Recompute::none), ff = shape.ff * size;
      // relu overwrites its input
      const std::int64_t inner = activation == Activation::relu ? 1 : gated ? 3 : 2;
      // the block's input is the output of the visit before; rstd of two norms, log-sum-exp of each head: fp32
      const std::int64_t statistics = 4 * (2 + shape.heads);
      EXPECT_EQ(none, (6 * shape.width + 2 * shape.kv_heads * shape.head_size) * size + inner * ff + statistics)
          << name_of(activation);
      EXPECT_EQ(none - kept(Recompute::activation), activation == Activation::relu ? 0 : ff) << name_of(activation);
      EXPECT_EQ(none - kept(Recompute::full), inner * ff) << name_of(activation);
      EXPECT_EQ(kept_bytes(shape, type, Recompute::block, false), shape.width * size) << "nothing but the output";
    }
  }
}

}  // namespace
}  // namespace argosy::test
