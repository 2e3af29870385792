#include "mpi/train/rank.hpp"

/// Models with other positions than the usual ones, on several ranks: parameters next to the embeddings (learned), and
/// a unit that all blocks of a side read (T5).
namespace argosy::test {
namespace {

using spec::Position;

spec::ModelSpec t5(bool tied) {
  spec::ModelConfig config =
      model_config({.width = 32, .ff = 48, .heads = 2, .encoder_layers = 1, .decoder_layers = 2});
  config.vocab_multiple = 8;
  config.max_positions = 32;
  config.dropout = 0.1;
  config.tie_embeddings = tied;
  config.tie_inputs = true;
  config.norm = spec::Norm::rms_norm;
  config.norm_position = spec::NormPosition::pre;
  config.bias = false;
  config.activation = spec::Activation::geglu;
  config.encoder.position = config.decoder.position = Position::t5;
  return spec::resolve(config, 23);
}

spec::ModelSpec with_positions(Position encoder, Position decoder) {
  spec::Architecture shape = small_shape(0.1, false);
  shape.encoder_position = encoder;
  shape.decoder_position = decoder;
  return shape;
}

std::vector<spec::ModelSpec> models() {
  return {t5(true), t5(false), with_positions(Position::learned, Position::learned),
          with_positions(Position::rope, Position::alibi),
          with_positions(Position::sinusoidal_fairseq, Position::none)};
}

TEST(RelativeBias, GradientIsTheSlopeOfTheLoss) {
  // The decoder's comes last but for its two blocks and the head, whose order in the model does not matter.
  spec::ModelSpec spec = t5(false);
  const auto bias = std::find_if(spec.units.begin(), spec.units.end(),
                                 [](const spec::Unit& unit) { return unit.name == "decoder.relative_bias"; });
  const auto from = static_cast<std::size_t>(bias - spec.units.begin()), last = spec.units.size() - 1;
  std::rotate(bias, bias + 1, spec.units.end());
  for (spec::Visit& visit : spec.visits)
    for (std::size_t& unit : visit.units) unit = unit == from ? last : unit > from ? unit - 1 : unit;
  spec.architecture.dropout = 0;
  expect_slopes(spec, {0, 1, 2, 5, 9});
}

class PositionsOnRanks : public OnRanks {};

TEST_P(PositionsOnRanks, TrainAsOnOneRankWithTheSameBitsInEveryScheme) {
  for (const spec::ModelSpec& spec : models()) {
    SCOPED_TRACE(boost::describe::enum_to_string(spec.architecture.encoder_position, ""));
    for (const Types& types : {all_types[0], all_types[1]}) {
      Rank alone{spec, {.type = types.weights, .master = types.master}};
      const auto batches = uneven_batches(spec.architecture, layout().world(), 1);
      (void)alone.step(batches, 1e-3);
      std::vector<double> expected;
      for (const plan::Scheme scheme : all_schemes) {
        for (const plan::Recompute recompute : {plan::Recompute::none, plan::Recompute::block}) {
          Rank shared =
              rank_of(spec, {.scheme = scheme, .type = types.weights, .master = types.master, .recompute = recompute});
          shared.poison();
          (void)shared.step(batches, 1e-3);
          EXPECT_LT(distance(shared.gradient(), alone.gradient()), types.weights == at::kFloat ? 2e-6 : 2e-2);
          shared.poison();
          (void)shared.step(batches, 1e-3);
          const std::vector<double> weights = shared.weights();
          if (expected.empty()) expected = weights;
          EXPECT_TRUE(weights == expected) << static_cast<int>(scheme) << static_cast<int>(recompute);
        }
      }
    }
  }
}

TEST_P(PositionsOnRanks, ACheckpointBringsThemBack) {
  for (const spec::ModelSpec& spec : models()) {
    SCOPED_TRACE(boost::describe::enum_to_string(spec.architecture.encoder_position, ""));
    const auto batches = [&](std::uint64_t step) { return uneven_batches(spec.architecture, layout().world(), step); };
    Rank going_on = rank_of(spec);
    (void)going_on.step(batches(0), 1e-3);
    RankStore store{GetParam()};
    const checkpoint::Reader saved = store.save(going_on);
    Rank resumed = rank_of(spec), other = Rank{spec};
    for (const train::UnitBuffers& unit : resumed.buffers().units()) unit.shard.master.zero_();
    load(resumed, saved, me());
    load(other, saved);
    EXPECT_TRUE(resumed.weights() == going_on.weights());
    EXPECT_TRUE(other.weights() == going_on.weights()) << "of one rank";
    EXPECT_TRUE(resumed.first_moments() == going_on.first_moments());
  }
}

INSTANTIATE_TEST_SUITE_P(All, PositionsOnRanks, testing::Values(Hierarchy::flat, Hierarchy::uneven), by_name);

}  // namespace
}  // namespace argosy::test
