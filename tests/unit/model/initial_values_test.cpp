#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "unit/model/support.hpp"

namespace argosy::test {
namespace {

TEST(InitialValues, AreTheSameHoweverTheyAreCut) {
  const spec::ModelSpec spec = tiny_translation();
  const spec::Parameter& param = spec.units[1].parameter("encoder/layer_0/ffn/linear_0/weight");
  ASSERT_THAT(param.shape, testing::ElementsAre(24, 16));
  std::vector<float> whole(384), pieces(384), other(384);
  model::initial_values(param, 7, 0, 384, whole.data());
  for (std::int64_t begin = 0; begin < 384; begin += 37)
    model::initial_values(param, 7, begin, std::min<std::int64_t>(begin + 37, 384), pieces.data() + begin);
  EXPECT_EQ(whole, pieces);
  model::initial_values(param, 8, 0, 384, other.data());
  EXPECT_NE(whole, other);
  const double mean = std::accumulate(whole.begin(), whole.end(), 0.0) / 384;
  const double square = std::inner_product(whole.begin(), whole.end(), whole.begin(), 0.0) / 384;
  const double sigma = std::sqrt(2.0 / (24 + 16));
  EXPECT_NEAR(mean, 0, 3 * sigma / std::sqrt(384));
  EXPECT_NEAR(square, sigma * sigma, 3 * sigma * sigma * std::sqrt(2.0 / 384));
}

TEST(InitialValues, APartMayHaveADeviationOfItsOwn) {
  const spec::ModelSpec spec = tiny_t5();
  const spec::Parameter& param = spec.units[2].parameter("encoder/layer_0/self_attention/linear_0/weight");
  ASSERT_THAT(param.shape, testing::ElementsAre(48, 16));
  std::vector<float> whole(768), pieces(768);
  model::initial_values(param, 7, 0, 768, whole.data());
  for (std::int64_t begin = 0; begin < 768; begin += 41)
    model::initial_values(param, 7, begin, std::min<std::int64_t>(begin + 41, 768), pieces.data() + begin);
  EXPECT_EQ(whole, pieces);
  for (const auto& [begin, sigma] : {std::pair{0, 1 / 8.0}, {256, 1 / 4.0}, {512, 1 / 4.0}}) {  // (16·4)^-½, 16^-½
    const auto part = whole.begin() + begin;
    const double square = std::inner_product(part, part + 256, part, 0.0) / 256;
    EXPECT_NEAR(square, sigma * sigma, 3 * sigma * sigma * std::sqrt(2.0 / 256)) << begin;
  }
}

TEST(InitialValues, PadRowIsZeroAndDeadIdsAreOut) {
  const spec::ModelSpec spec = tiny_translation();
  const spec::Architecture& shape = spec.architecture;
  const spec::Unit& embedding = spec.units.front();
  std::vector<float> table(static_cast<std::size_t>(shape.vocabulary.rows * shape.width));
  model::initial_values(embedding.parameter("decoder/embeddings/weight"), 1, 0, static_cast<std::int64_t>(table.size()),
                        table.data());
  const auto row = table.begin() + shape.vocabulary.start * shape.width;
  EXPECT_TRUE(std::all_of(row, row + shape.width, [](float v) { return v == 0; }));
  EXPECT_TRUE(std::none_of(table.begin(), row, [](float v) { return v == 0; }));
  std::vector<float> bias(static_cast<std::size_t>(shape.vocabulary.rows));
  model::initial_values(embedding.parameter("decoder/projection/bias"), 1, 0, shape.vocabulary.rows, bias.data());
  for (std::int64_t id = 0; id < shape.vocabulary.rows; ++id)
    EXPECT_EQ(bias[static_cast<std::size_t>(id)], id < shape.vocabulary.pieces ? 0.0F : -1e4F);
}

}  // namespace
}  // namespace argosy::test
