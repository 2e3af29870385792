#include "spec/model_spec.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "support/small_model.hpp"

namespace argosy::spec {
namespace {

using testing::ElementsAre, testing::FieldsAre;

/// Width 16, ff 24, four heads over two of keys and values, two layers a side.
Architecture small(ModelType type = ModelType::encoder_decoder) {
  ModelConfig config = argosy::test::model_config({.type = type,
                                                   .width = 16,
                                                   .ff = 24,
                                                   .heads = 4,
                                                   .encoder_layers = type == ModelType::encoder_decoder ? 2 : 0,
                                                   .decoder_layers = 2});
  config.kv_heads = 2;
  return resolve(config, 60);
}

const Unit& unit_named(const ModelSpec& spec, const std::string& name) {
  return *std::find_if(spec.units.begin(), spec.units.end(), [&](const Unit& unit) { return unit.name == name; });
}

std::vector<std::string> names_of(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const Unit& unit : spec.units) names.push_back(unit.name);
  return names;
}

TEST(Vocabularies, PadToAMultipleWithTheIdsOfTheShape) {
  const Vocabulary marian = vocabulary_of({TokenLayout::marian}, 8000);
  EXPECT_EQ(std::tuple(marian.rows, marian.pad, marian.start), std::tuple(8064, 8063, 8063));
  EXPECT_EQ(std::tuple(marian.eos, marian.unk, marian.bos), std::tuple(0, 1, std::nullopt));
  EXPECT_TRUE(marian.is_dead(8063));
  EXPECT_TRUE(marian.is_dead(8000));
  EXPECT_FALSE(marian.is_dead(7999));
  // 63 pieces and pad fill 64 rows; 64 pieces need another 64.
  EXPECT_EQ(vocabulary_of({TokenLayout::pegasus}, 63).rows, 64);
  EXPECT_EQ(vocabulary_of({TokenLayout::pegasus}, 64).rows, 128);

  const Vocabulary t5 = vocabulary_of({TokenLayout::t5}, 64);
  EXPECT_EQ(std::tuple(t5.rows, t5.pad, t5.start, t5.eos), std::tuple(64, 0, 0, 1));
  EXPECT_FALSE(t5.is_dead(0));

  const Vocabulary llama = vocabulary_of({TokenLayout::llama}, 65);
  EXPECT_EQ(std::tuple(llama.rows, llama.pad, llama.bos, llama.start), std::tuple(128, std::nullopt, 1, 1));
  EXPECT_EQ(llama.filler(), 2);
}

TEST(Vocabularies, OwnIdsReplaceThoseOfTheShape) {
  const Vocabulary own =
      vocabulary_of({TokenLayout::pegasus, 64, TokenIds{.eos = 2, .unk = 3, .bos = 0, .pad = 1}}, 70);
  EXPECT_EQ(std::tuple(own.eos, own.unk, own.bos, own.pad), std::tuple(2, 3, 0, 1));
  EXPECT_EQ(std::tuple(own.rows, own.pieces, own.start, own.filler()), std::tuple(128, 70, 0, 1));
  EXPECT_EQ(own.zero_row(), std::nullopt);
  EXPECT_FALSE(own.is_dead(69));
  const Vocabulary few = vocabulary_of({TokenLayout::llama, 64, TokenIds{.eos = 7}}, 70);
  EXPECT_EQ(std::tuple(few.start, few.unk, few.bos, few.pad, few.filler()),
            std::tuple(7, std::nullopt, std::nullopt, std::nullopt, 7));
  EXPECT_EQ(vocabulary_of({TokenLayout::llama, 64, TokenIds{.eos = 7, .bos = 5, .start = 6}}, 70).start, 6);
}

TEST(ModelSpec, TiedInputsShareAMatrixAndTheOutputHasItsOwn) {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  config.tie_embeddings = false;
  config.tie_inputs = true;
  config.norm_position = NormPosition::pre;
  config.output_bias = false;
  const ModelSpec spec = resolve(config, 100);
  EXPECT_THAT(names_of(spec), ElementsAre("embedding", "encoder.0", "encoder.1", "decoder.0", "decoder.1", "head"));
  const std::vector<std::size_t> units{0, 1, 2, 0, 3, 4, 5};
  for (std::size_t v = 0; v < spec.visits.size(); ++v) EXPECT_THAT(spec.visits[v].units, ElementsAre(units[v]));
  std::vector<std::string> names;
  for (const std::size_t unit : {0, 5})
    for (const Parameter& parameter : spec.units[unit].parameters) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("decoder/embeddings/weight", "encoder/layer_norm/gamma", "encoder/layer_norm/beta",
                                 "decoder/projection/weight", "decoder/layer_norm/gamma", "decoder/layer_norm/beta"));
}

TEST(ModelSpec, VisitsReadTheUnitsOfTheirMatrices) {
  const ModelSpec tied = small();
  EXPECT_THAT(names_of(tied), ElementsAre("embedding", "encoder.0", "encoder.1", "decoder.0", "decoder.1"));
  const std::vector<std::size_t> one_matrix{0, 1, 2, 0, 3, 4, 0};
  for (std::size_t v = 0; v < tied.visits.size(); ++v) EXPECT_THAT(tied.visits[v].units, ElementsAre(one_matrix[v]));
  EXPECT_EQ(tied.visits[3].kind, VisitKind::target);
  EXPECT_TRUE(tied.visits[3].writes_memory);
  EXPECT_TRUE(tied.visits[5].reads_memory);
  EXPECT_EQ(tied.visits[5].layer, 1);

  Architecture separate = small();
  separate.tie_embeddings = separate.tie_inputs = false;
  EXPECT_THAT(names_of(separate), ElementsAre("source_embedding", "encoder.0", "encoder.1", "target_embedding",
                                              "decoder.0", "decoder.1", "head"));
  for (std::size_t v = 0; const Visit& visit : ModelSpec(separate).visits) EXPECT_THAT(visit.units, ElementsAre(v++));

  separate.tie_embeddings = true;
  EXPECT_THAT(names_of(separate),
              ElementsAre("source_embedding", "encoder.0", "encoder.1", "target_embedding", "decoder.0", "decoder.1"));
  EXPECT_THAT(ModelSpec(separate).visits.back().units, ElementsAre(3)) << "the output is the matrix of the target";

  const ModelSpec language = small(ModelType::decoder);
  EXPECT_THAT(names_of(language), ElementsAre("embedding", "decoder.0", "decoder.1", "head"));
  for (const Visit& visit : language.visits) EXPECT_FALSE(visit.reads_memory || visit.writes_memory) << visit.name;
}

TEST(ModelSpec, TheBlocksOfASideShareTheirRelativeBias) {
  Architecture shape = small();
  shape.encoder_position = shape.decoder_position = Position::t5;
  const ModelSpec spec = shape;
  EXPECT_THAT(names_of(spec), ElementsAre("embedding", "encoder.relative_bias", "encoder.0", "encoder.1",
                                          "decoder.relative_bias", "decoder.0", "decoder.1"));
  const std::vector<std::vector<std::size_t>> units{{0}, {2, 1}, {3, 1}, {0}, {5, 4}, {6, 4}, {0}};
  for (std::size_t v = 0; v < units.size(); ++v) EXPECT_EQ(spec.visits[v].units, units[v]) << spec.visits[v].name;
  const Parameter& bias =
      unit_named(spec, "decoder.relative_bias").parameter("decoder/layer_0/self_attention/relative_attention_bias");
  EXPECT_THAT(bias.shape, ElementsAre(32, 4));
  EXPECT_EQ(std::tuple(bias.role, bias.decay, bias.initial.deviation), std::tuple(Role::relative_bias, false, .25));
  // Queries make up for the scale that scores do not get: (16·4)^-½.
  for (const char* name :
       {"decoder/layer_0/self_attention/linear_0/weight", "decoder/layer_0/attention/linear_0/weight"}) {
    const Parameter& query = unit_named(spec, "decoder.0").parameter(name);
    EXPECT_EQ(query.parts.empty() ? query.initial.deviation : query.parts.front().deviation, 1.0 / 8) << name;
  }
  EXPECT_EQ(
      unit_named(spec, "decoder.0").parameter("decoder/layer_0/self_attention/linear_0/weight").parts[1].deviation,
      std::nullopt);
}

TEST(ModelSpec, LearnedPositionsBelongToTheUnitThatEmbeds) {
  for (const bool tied : {true, false}) {
    Architecture shape = small();
    shape.tie_embeddings = shape.tie_inputs = tied;
    shape.max_positions = 33;
    shape.encoder_position = shape.decoder_position = Position::learned;
    const ModelSpec spec = shape;
    for (const std::string side : {"encoder", "decoder"}) {
      const char* const unit = tied ? "embedding" : side == "encoder" ? "source_embedding" : "target_embedding";
      const Parameter& table = unit_named(spec, unit).parameter(side + "/position_encodings/encodings");
      EXPECT_THAT(table.shape, ElementsAre(33, 16));
      EXPECT_EQ(std::tuple(table.role, table.initial.deviation, table.initial.zero_row),
                std::tuple(Role::position_table, .25, std::nullopt));
    }
  }
}

TEST(ModelSpec, QueriesKeysAndValuesMayBeTheOnlyOnesWithBiases) {
  Architecture shape = small();
  shape.bias = shape.output_bias = false;
  shape.qkv_bias = true;
  const ModelSpec spec = shape;
  std::vector<std::string> names;
  for (const Parameter& parameter : unit_named(spec, "decoder.0").parameters)
    if (parameter.role == Role::linear_bias) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("decoder/layer_0/self_attention/linear_0/bias",
                                 "decoder/layer_0/attention/linear_0/bias", "decoder/layer_0/attention/linear_1/bias"));
  EXPECT_THROW((void)unit_named(spec, "embedding").parameter("decoder/projection/bias"), Error);
}

TEST(ModelSpec, StackedMatricesAndBiasesNameTheirParts) {
  Architecture gated = small();
  gated.activation = Activation::swiglu;
  const ModelSpec spec = gated;
  const Unit& block = unit_named(spec, "decoder.1");
  const auto named = [](const char* name, int rows) { return FieldsAre(name, rows, testing::_); };
  for (const char* kind : {"/weight", "/bias"}) {
    const auto parts = [&](const std::string& name) { return block.parameter("decoder/layer_1/" + name + kind).parts; };
    EXPECT_THAT(parts("self_attention/linear_0"), ElementsAre(named("query", 16), named("key", 8), named("value", 8)));
    EXPECT_THAT(parts("attention/linear_1"), ElementsAre(named("key", 8), named("value", 8)));
    EXPECT_THAT(parts("ffn/linear_0"), ElementsAre(named("gate", 24), named("up", 24)));
    EXPECT_TRUE(parts("ffn/linear_1").empty());
  }
  EXPECT_THROW((void)block.parameter("decoder/layer_0/ffn/linear_1/weight"), Error);
}

TEST(ModelSpec, InitialSpreadFollowsTheRole) {
  const Architecture post = small();
  Architecture pre = post;
  pre.norm_position = NormPosition::pre;
  pre.activation = Activation::swiglu;
  const auto deviation = [](const Architecture& architecture, const std::string& unit, const std::string& name) {
    const ModelSpec spec = architecture;
    return unit_named(spec, unit).parameter(name).initial.deviation;
  };
  const auto xavier = [](int in, int out) { return std::sqrt(2.0 / (in + out)); };
  // Each stacked matrix by itself.
  EXPECT_EQ(deviation(post, "encoder.0", "encoder/layer_0/self_attention/linear_0/weight"), xavier(16, 16));
  EXPECT_EQ(deviation(post, "decoder.0", "decoder/layer_0/attention/linear_1/weight"), xavier(16, 8));
  EXPECT_EQ(deviation(pre, "encoder.0", "encoder/layer_0/ffn/linear_0/weight"), xavier(16, 24));
  EXPECT_EQ(deviation(post, "embedding", "decoder/embeddings/weight"), 0.25);
  Architecture t5 = pre;  // unscaled embeddings, and tied outputs over the root of the width
  t5.vocabulary = vocabulary_of({TokenLayout::t5}, 60);
  EXPECT_EQ(deviation(t5, "embedding", "decoder/embeddings/weight"), 1);
  t5.tie_embeddings = false;
  EXPECT_EQ(deviation(t5, "head", "decoder/projection/weight"), 0.25);
  // Ends of branches: in pre-norm models over the root of the number of branches.
  EXPECT_EQ(deviation(post, "encoder.1", "encoder/layer_1/ffn/linear_1/weight"), xavier(24, 16));
  EXPECT_EQ(deviation(pre, "encoder.1", "encoder/layer_1/ffn/linear_1/weight"), xavier(24, 16) / std::sqrt(4.0));
  EXPECT_EQ(deviation(pre, "decoder.1", "decoder/layer_1/attention/linear_2/weight"), xavier(16, 16) / std::sqrt(6.0));
}

}  // namespace
}  // namespace argosy::spec
