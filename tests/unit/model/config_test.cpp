#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "config/describe.hpp"
#include "core/error.hpp"
#include "model/model.hpp"
#include "model/units.hpp"
#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

using namespace model;

TEST(ModelConfig, PresetsHaveTheirPublishedSizes) {
  ModelConfig config;
  config.type = ModelType::decoder;
  config.preset = Preset::mistral_7b;
  const Model mistral(resolve(config, 0), partition::Layout());
  EXPECT_EQ(mistral.parameters(), 7'241'732'096);
  EXPECT_EQ(exportable_as(mistral.shape()), "MistralForCausalLM, CTranslate2");
  const ModelShape language = resolve(config, 32000);
  EXPECT_EQ(std::tuple(language.start_id, language.eos_id, language.dead_begin), std::tuple(1, 2, 32000));
  EXPECT_EQ(language.norm_epsilon, 1e-5);

  ModelConfig small;
  small.preset = Preset::mt_small;
  small.norm_position = NormPosition::pre;
  const ModelShape shape = resolve(small, 8000);
  EXPECT_EQ(shape.vocab_padded, 8064);  // 8000 pieces, fillers, <pad> last
  EXPECT_EQ(std::tuple(shape.start_id, shape.eos_id, shape.dead_begin), std::tuple(8063, 0, 8000));
  EXPECT_EQ(shape.norm_epsilon, 1e-5);
  EXPECT_EQ(shape.head_size, 48);
  EXPECT_EQ(exportable_as(shape), "PegasusForConditionalGeneration, CTranslate2");
}

TEST(ModelConfig, EveryKeyOverridesItsPreset) {
  ModelConfig config;
  config.preset = Preset::mt_tiny;
  const ModelShape base = resolve(config, 100);
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
  const ModelShape shape = resolve(config, 100);
  EXPECT_EQ(std::tuple(shape.width, shape.ff, shape.heads, shape.kv_heads, shape.head_size, shape.vocab_padded),
            std::tuple(128, 200, 8, 2, 24, 104));
  EXPECT_EQ(std::tuple(shape.rope_theta, shape.max_positions, shape.norm, shape.norm_position, shape.activation),
            std::tuple(5000.0, 77, Norm::rms_norm, NormPosition::pre, Activation::swiglu));
  EXPECT_EQ(std::tuple(shape.bias, shape.tie_embeddings, shape.dropout, shape.encoder_layers, shape.decoder_layers),
            std::tuple(false, false, 0.25, 1, 5));
  EXPECT_EQ(std::tuple(shape.encoder_position, shape.decoder_position), std::tuple(Position::rope, Position::rope));
  EXPECT_EQ(exportable_as(shape), "CTranslate2");
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
  config::Problems problems;
  validate(config, problems);
  std::set<std::string> places;
  for (const auto& problem : problems.all()) places.insert(problem.pointer);
  EXPECT_EQ(places, (std::set<std::string>{"/window", "/dropout", "/decoder/layers"}));

  ModelConfig uneven;
  uneven.width = 10;
  uneven.heads = 4;
  uneven.kv_heads = 3;
  config::Problems more;
  validate(uneven, more);
  ASSERT_EQ(more.all().size(), 2);
  EXPECT_EQ(more.all()[0].pointer, "/heads");
  EXPECT_EQ(more.all()[1].pointer, "/kv_heads");
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

TEST(InitialValues, AreTheSameHoweverTheyAreCut) {
  const ModelShape shape = tiny_translation();
  const partition::ParamSpec param{"encoder/layer_0/ffn/linear_0/weight", {24, 16}, true};
  std::vector<float> whole(384), pieces(384), other(384);
  initial_values(shape, param, 7, 0, 384, whole.data());
  for (std::int64_t begin = 0; begin < 384; begin += 37) {
    initial_values(shape, param, 7, begin, std::min<std::int64_t>(begin + 37, 384), pieces.data() + begin);
  }
  EXPECT_EQ(whole, pieces);
  initial_values(shape, param, 8, 0, 384, other.data());
  EXPECT_NE(whole, other);
  const double mean = std::accumulate(whole.begin(), whole.end(), 0.0) / 384;
  const double square = std::inner_product(whole.begin(), whole.end(), whole.begin(), 0.0) / 384;
  const double sigma = std::sqrt(2.0 / (24 + 16));
  EXPECT_NEAR(mean, 0, 3 * sigma / std::sqrt(384));
  EXPECT_NEAR(square, sigma * sigma, 3 * sigma * sigma * std::sqrt(2.0 / 384));
}

TEST(InitialValues, SpreadFollowsTheRole) {
  ModelShape post = tiny_translation(), pre = post;  // width 16, ff 24, two layers a side
  post.kv_heads = 2;
  pre.norm_position = NormPosition::pre;
  pre.activation = Activation::swiglu;
  const auto sigma = [](const ModelShape& shape, const std::string& name, std::int64_t columns) {
    std::vector<float> values(static_cast<std::size_t>(3000 * columns));
    initial_values(shape, {name, {3000, columns}, true}, 3, 0, 3000 * columns, values.data());
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0) /
                     static_cast<double>(values.size()));
  };
  const auto expect = [&](const ModelShape& shape, const std::string& name, std::int64_t columns, double expected) {
    EXPECT_NEAR(sigma(shape, name, columns), expected, 0.02 * expected) << name;
  };
  expect(post, "encoder/layer_0/self_attention/linear_0/weight", 16, std::sqrt(2.0 / 32));  // q, k, v apart
  expect(post, "decoder/layer_0/attention/linear_1/weight", 16, std::sqrt(2.0 / 24));       // k, v of two heads apart
  expect(pre, "encoder/layer_0/ffn/linear_0/weight", 16, std::sqrt(2.0 / 40));              // gate, up apart
  expect(post, "decoder/embeddings/weight", 16, 0.25);
  // Ends of branches: Xavier over all 3000 rows, in pre-norm models over the root of the number of branches as well.
  expect(post, "encoder/layer_1/ffn/linear_1/weight", 24, std::sqrt(2.0 / 3024));
  expect(pre, "encoder/layer_1/ffn/linear_1/weight", 24, std::sqrt(2.0 / 3024 / 4));
  expect(pre, "decoder/layer_1/attention/linear_2/weight", 16, std::sqrt(2.0 / 3016 / 6));
}

TEST(InitialValues, PadRowIsZeroAndDeadIdsAreOut) {
  const ModelShape shape = tiny_translation();
  std::vector<float> table(static_cast<std::size_t>(shape.vocab_padded * shape.width));
  initial_values(shape, {"decoder/embeddings/weight", {shape.vocab_padded, shape.width}}, 1, 0,
                 static_cast<std::int64_t>(table.size()), table.data());
  const auto row = table.begin() + shape.start_id * shape.width;
  EXPECT_TRUE(std::all_of(row, row + shape.width, [](float v) { return v == 0; }));
  EXPECT_TRUE(std::none_of(table.begin(), row, [](float v) { return v == 0; }));
  std::vector<float> bias(static_cast<std::size_t>(shape.vocab_padded));
  initial_values(shape, {"decoder/projection/bias", {shape.vocab_padded}, false}, 1, 0, shape.vocab_padded,
                 bias.data());
  for (std::int64_t id = 0; id < shape.vocab_padded; ++id) {
    EXPECT_EQ(bias[static_cast<std::size_t>(id)], id < shape.dead_begin ? 0.0F : -1e4F);
  }
}

}  // namespace
}  // namespace argosy::test
