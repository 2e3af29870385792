#include <gmock/gmock.h>

#include "config/describe.hpp"
#include "spec/model_spec.hpp"

namespace argosy::spec {
namespace {

TEST(ModelConfig, PresetsHaveTheirPublishedSizes) {
  ModelConfig config;
  config.type = ModelType::decoder;
  config.preset = Preset::mistral_7b;
  std::int64_t parameters = 0;
  for (const Unit& unit : ModelSpec(resolve(config, 0)).units)
    for (const Parameter& parameter : unit.parameters) parameters += parameter.numel();
  EXPECT_EQ(parameters, 7'241'732'096);
  const spec::Architecture language = resolve(config, 32000);
  EXPECT_EQ(std::tuple(language.vocabulary.start, language.vocabulary.eos, language.vocabulary.pieces),
            std::tuple(1, 2, 32000));
  EXPECT_EQ(language.norm_epsilon, 1e-5);

  ModelConfig small;
  small.preset = Preset::mt_small;
  small.norm_position = NormPosition::pre;
  const spec::Architecture shape = resolve(small, 8000);
  EXPECT_EQ(shape.vocabulary.rows, 8064);  // 8000 pieces, fillers, <pad> last
  EXPECT_EQ(std::tuple(shape.vocabulary.start, shape.vocabulary.eos, shape.vocabulary.pieces),
            std::tuple(8063, 0, 8000));
  EXPECT_EQ(std::tuple(shape.norm_epsilon, shape.head_size), std::tuple(1e-5, 48));
}

TEST(ModelConfig, EveryKeyOverridesItsPreset) {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  const spec::Architecture base = resolve(config, 100);
  config.width = 128;
  config.ff = 200;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_size = 24;
  config.vocab_multiple = 8;
  config.rope_theta = 5000;
  config.max_positions = 77;
  config.norm = Norm::rms_norm;
  config.norm_position = NormPosition::pre;
  config.activation = Activation::swiglu;
  config.bias = false;
  config.tie_embeddings = false;
  config.dropout = 0.25;
  config.encoder = {.layers = 1, .position = Position::rope};
  config.decoder = {.layers = 5, .position = Position::rope};
  const spec::Architecture shape = resolve(config, 100);
  EXPECT_EQ(std::tuple(shape.width, shape.ff, shape.heads, shape.kv_heads, shape.head_size, shape.vocabulary.rows),
            std::tuple(128, 200, 8, 2, 24, 104));
  EXPECT_EQ(std::tuple(shape.rope_theta, shape.max_positions, shape.norm, shape.norm_position, shape.activation),
            std::tuple(5000.0, 77, Norm::rms_norm, NormPosition::pre, Activation::swiglu));
  EXPECT_EQ(std::tuple(shape.bias, shape.tie_embeddings, shape.dropout, shape.encoder_layers, shape.decoder_layers),
            std::tuple(false, false, 0.25, 1, 5));
  EXPECT_EQ(std::tuple(shape.encoder_position, shape.decoder_position), std::tuple(Position::rope, Position::rope));
  EXPECT_EQ(shape.norm_epsilon, 1e-6);  // CTranslate2 has one for all norms, and this where they have no beta
  EXPECT_EQ(std::tuple(base.norm, base.norm_position, base.activation, base.bias, base.tie_embeddings, base.dropout),
            std::tuple(Norm::layer_norm, NormPosition::post, Activation::relu, true, true, 0.1));
}

TEST(ModelConfig, ProblemsAreNamedTogether) {
  ModelConfig config;
  config.width = 10;
  config.heads = 4;
  config.window = 5;
  config.dropout = 1.0;
  config.decoder.layers = 0;
  const auto places = [](const ModelConfig& wrong) {
    config::Problems problems;
    validate(wrong, problems);
    std::vector<std::string> all;
    for (const auto& problem : problems.all()) all.push_back(problem.pointer);
    return all;
  };
  EXPECT_THAT(places(config), testing::UnorderedElementsAre("/window", "/dropout", "/decoder/layers"));

  ModelConfig uneven;
  uneven.width = 10;
  uneven.heads = 4;
  uneven.kv_heads = 3;
  EXPECT_THAT(places(uneven), testing::ElementsAre("/heads", "/kv_heads"));
  EXPECT_THROW((void)resolve(ModelConfig{}, 100), Error);
  ModelConfig other;
  other.preset = Preset::mt_tiny;
  other.vocab_size = 99;
  EXPECT_THROW((void)resolve(other, 100), Error);
}

TEST(ModelConfig, RefusesPositionsWhoseTableFitsNoMemory) {
  ModelConfig config;
  config.preset = Preset::mt_small;
  config.max_positions = most_size;
  EXPECT_THROW((void)resolve(config, 100), Error);
  config.encoder.position = config.decoder.position = Position::rope;
  EXPECT_EQ(resolve(config, 100).max_positions, most_size);
}

TEST(ModelConfig, EveryKeyHasItsText) { EXPECT_THAT(config::keys_without_text<ModelConfig>(), testing::IsEmpty()); }

}  // namespace
}  // namespace argosy::spec
