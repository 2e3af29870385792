#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "config/describe.hpp"
#include "spec/model_spec.hpp"
#include "support/refusal.hpp"

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
  config.rope_scaling = {.factor = 3, .low_freq_factor = 2, .high_freq_factor = 5, .original_max_positions = 64};
  config.max_positions = 77;
  config.norm = Norm::rms_norm;
  config.norm_epsilon = 1e-3;
  config.norm_position = NormPosition::pre;
  config.activation = Activation::swiglu;
  config.bias = false;
  config.qkv_bias = true;
  config.embedding_scale = false;
  config.tie_embeddings = false;
  config.dropout = 0.25;
  config.neftune_alpha = 5;
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
  EXPECT_EQ(std::tuple(shape.norm_epsilon, shape.qkv_bias, shape.embedding_scale(), shape.neftune_alpha),
            std::tuple(1e-3, true, 1.0, 5.0));
  EXPECT_EQ(std::tuple(shape.rope_scaling->factor, shape.rope_scaling->low_freq_factor,
                       shape.rope_scaling->high_freq_factor, shape.rope_scaling->original_max_positions),
            std::tuple(3.0, 2.0, 5.0, 64));
  config.norm_epsilon.reset();
  EXPECT_EQ(resolve(config, 100).norm_epsilon, 1e-6);  // CTranslate2 has one for all norms, and this without beta
  EXPECT_EQ(std::tuple(base.norm_epsilon, base.qkv_bias, base.embedding_scale(), base.rope_scaling.has_value(),
                       base.neftune_alpha),
            std::tuple(1e-5, false, std::sqrt(96.0), false, 0.0));
  EXPECT_EQ(std::tuple(base.norm, base.norm_position, base.activation, base.bias, base.tie_embeddings, base.dropout),
            std::tuple(Norm::layer_norm, NormPosition::post, Activation::relu, true, true, 0.1));
}

/// All that makes T5 v1.1.
ModelConfig t5() {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  config.norm = Norm::rms_norm;
  config.norm_position = NormPosition::pre;
  config.bias = false;
  config.activation = Activation::geglu;
  config.encoder.position = config.decoder.position = Position::t5;
  return config;
}

TEST(ModelConfig, AllThatMakesT5TogetherGivesItsIdsAndScales) {
  const Architecture shape = resolve(t5(), 100);
  EXPECT_EQ(shape.vocabulary, vocabulary_of({TokenLayout::t5}, 100));
  EXPECT_EQ(std::tuple(shape.vocabulary.pad, shape.vocabulary.eos, shape.vocabulary.unk), std::tuple(0, 1, 2));
  EXPECT_EQ(shape.vocabulary.zero_row(), std::nullopt) << "the start id is trained";
  EXPECT_EQ(std::tuple(shape.embedding_scale(), shape.attention_scale(true), shape.attention_scale(false)),
            std::tuple(1.0, 1.0, 1.0));
  EXPECT_EQ(shape.output_scale(), 1 / std::sqrt(96.0));
  ModelConfig untied = t5();
  untied.tie_embeddings = false;
  EXPECT_EQ(resolve(untied, 100).output_scale(), 1);

  const std::function<void(ModelConfig&)> changes[] = {[](ModelConfig& c) { c.norm = Norm::layer_norm; },
                                                       [](ModelConfig& c) { c.bias.reset(); },
                                                       [](ModelConfig& c) { c.qkv_bias = true; },
                                                       [](ModelConfig& c) { c.activation = Activation::swiglu; },
                                                       [](ModelConfig& c) { c.encoder.position = Position::rope; },
                                                       [](ModelConfig& c) { c.decoder.position.reset(); }};
  for (const auto& change : changes) {
    ModelConfig other = t5();
    change(other);
    const Architecture pegasus = resolve(other, 100);
    EXPECT_EQ(pegasus.vocabulary.layout, TokenLayout::pegasus);
    EXPECT_EQ(pegasus.vocabulary.zero_row(), pegasus.vocabulary.start);
    EXPECT_EQ(std::tuple(pegasus.embedding_scale(), pegasus.output_scale()), std::tuple(std::sqrt(96.0), 1.0));
  }
}

TEST(ModelConfig, TokenIdsMayBeThoseThatNoTextHas) {
  ModelConfig config;
  config.type = ModelType::decoder;
  config.preset = Preset::lm_tiny;
  config.token_ids = TokenIds{.eos = 90, .start = 95};
  config.vocab_size = 100;
  const VocabularyRule rule = vocabulary_rule(config);
  EXPECT_EQ(std::tuple(rule.ids, rule.least_pieces), std::tuple(config.token_ids, 100));
  const Vocabulary vocabulary = resolve(config, 100).vocabulary;
  EXPECT_EQ(std::tuple(vocabulary.pieces, vocabulary.eos, vocabulary.start), std::tuple(100, 90, 95));
  config.vocab_size = 95;
  EXPECT_THAT(test::refusal(Fault::config, [&] { (void)resolve(config, 95); }),
              testing::HasSubstr("model.token_ids.start: expected an id below 95"));
}

TEST(ModelConfig, AVocabularyMayHaveMorePiecesThanItsTokenizerAndNotFewer) {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  EXPECT_EQ(vocabulary_rule(config).least_pieces, 0);
  config.vocab_size = 100;
  EXPECT_EQ(vocabulary_rule(config).least_pieces, 100);
  EXPECT_EQ(resolve(config, 90).vocabulary.pieces, 100);
  EXPECT_THAT(test::refusal(Fault::config, [&] { (void)resolve(config, 101); }),
              testing::HasSubstr("model.vocab_size (100) is below the tokenizer's number of pieces (101)"));
}

TEST(ModelConfig, EachSideHasPositionsOfItsOwn) {
  for (const Position encoder : {Position::sinusoidal, Position::sinusoidal_fairseq, Position::learned, Position::rope,
                                 Position::alibi, Position::t5}) {
    ModelConfig config;
    config.preset = Preset::mt_tiny;
    config.encoder.position = encoder;
    config.decoder.position = Position::none;
    const Architecture shape = resolve(config, 100);
    EXPECT_EQ(std::tuple(shape.position(true), shape.position(false)), std::tuple(encoder, Position::none));
    EXPECT_EQ(shape.attention_scale(true), encoder == Position::t5 ? 1 : 1 / std::sqrt(48.0));
    EXPECT_EQ(shape.attention_scale(false), 1 / std::sqrt(48.0));
  }
}

std::vector<std::string> problems_of(const ModelConfig& config) {
  config::Problems problems;
  validate(config, problems);
  std::vector<std::string> all;
  for (const auto& problem : problems.all()) all.push_back(problem.pointer);
  return all;
}

TEST(ModelConfig, AnEncoderWithoutPositionsHasToBeAskedFor) {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  config.decoder.position = Position::none;
  EXPECT_THAT(problems_of(config), testing::IsEmpty());
  config.encoder.position = Position::none;
  EXPECT_THAT(problems_of(config), testing::ElementsAre("/encoder/position"));
  config.allow_encoder_without_positions = true;
  EXPECT_THAT(problems_of(config), testing::IsEmpty());
}

TEST(ModelConfig, RopeScalingNeedsRotaryPositionsAndNumbersInOrder) {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  config.rope_scaling.emplace();
  EXPECT_THAT(problems_of(config), testing::ElementsAre("/rope_scaling"));
  config.encoder.position = Position::rope;
  EXPECT_THAT(problems_of(config), testing::IsEmpty());
  config.norm_epsilon = 0;
  EXPECT_THAT(problems_of(config), testing::ElementsAre("/norm_epsilon"));
  const auto wrong = [](const RopeScaling& scaling) {
    config::Problems problems;
    validate(scaling, problems);
    std::vector<std::string> all;
    for (const auto& problem : problems.all()) all.push_back(problem.pointer);
    return all;
  };
  EXPECT_THAT(wrong({}), testing::IsEmpty());
  EXPECT_THAT(wrong({.factor = .5, .low_freq_factor = 0, .high_freq_factor = 0, .original_max_positions = 0}),
              testing::ElementsAre("/factor", "/low_freq_factor", "/high_freq_factor", "/original_max_positions"));
}

TEST(ModelConfig, ShiftsOnlyPositionsThatCountFromTheStart) {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  EXPECT_EQ(resolve(config, 100).position_shift_max, 0);
  config.max_positions = 50;
  config.position_shift_max = 49;
  config.decoder.position = Position::learned;
  EXPECT_THAT(problems_of(config), testing::IsEmpty());
  EXPECT_EQ(resolve(config, 100).position_shift_max, 49);
  for (const std::int64_t most : {-1, 50}) {
    config.position_shift_max = most;
    EXPECT_THAT(problems_of(config), testing::ElementsAre("/position_shift_max")) << most;
  }
  config.position_shift_max = 1;
  for (const Position position : {Position::rope, Position::alibi, Position::t5, Position::none}) {
    config.decoder.position = position;
    EXPECT_THAT(problems_of(config), testing::ElementsAre("/position_shift_max"));
  }
  ModelConfig language;
  language.type = ModelType::decoder;
  language.position_shift_max = 1;
  EXPECT_THAT(problems_of(language), testing::ElementsAre("/position_shift_max")) << "rope is its default";
  language.decoder.position = Position::sinusoidal;
  EXPECT_THAT(problems_of(language), testing::IsEmpty());
}

TEST(ModelConfig, ProblemsAreNamedTogether) {
  ModelConfig config;
  config.width = 10;
  config.heads = 4;
  config.window = 5;
  config.dropout = 1.0;
  config.neftune_alpha = -1;
  config.decoder.layers = 0;
  EXPECT_THAT(problems_of(config),
              testing::UnorderedElementsAre("/window", "/dropout", "/neftune_alpha", "/decoder/layers"));

  ModelConfig uneven;
  uneven.width = 10;
  uneven.heads = 4;
  uneven.kv_heads = 3;
  EXPECT_THAT(problems_of(uneven), testing::ElementsAre("/heads", "/kv_heads"));
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
  config.encoder.position = config.decoder.position = Position::sinusoidal_fairseq;
  EXPECT_THROW((void)resolve(config, 100), Error);
  config.encoder.position = config.decoder.position = Position::rope;
  EXPECT_EQ(resolve(config, 100).max_positions, most_size);
}

TEST(ModelConfig, EveryKeyHasItsText) { EXPECT_THAT(config::keys_without_text<ModelConfig>(), testing::IsEmpty()); }

}  // namespace
}  // namespace argosy::spec
