#include <gmock/gmock.h>

#include "data/pipeline.hpp"
#include "data/tokenizer_training.hpp"
#include "support/small_text.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre;

const Tokenizer& small_tokenizer() {
  static const Tokenizer tokenizer =
      Tokenizer::load(train_tokenizer({.vocab_size = 200}, test::verses(200).of_both(), spec::TokenLayout::marian), {});
  return tokenizer;
}

Materials materials() { return {.tokenizer = small_tokenizer(), .languages = {}}; }

TEST(Transforms, MaxLengthLeavesOutPairsWithALongerSide) {
  const auto transform = MaxLength{.source = 3, .target = 2}.make(materials());
  for (const auto& [source, target, kept] : {std::tuple{3, 2, true}, {4, 2, false}, {3, 3, false}, {1, 1, true}}) {
    Example example;
    example.source.resize(static_cast<std::size_t>(source));
    example.target.resize(static_cast<std::size_t>(target));
    EXPECT_EQ(transform->apply(example, nullptr), kept) << source << " " << target;
  }
  EXPECT_EQ(transform->longest({9, 9}, {}), (Lengths{3, 2}));
  EXPECT_EQ(transform->longest({1, 1}, {}), (Lengths{1, 1}));
  EXPECT_NE(transform->recipe(), MaxLength{}.make(materials())->recipe());
}

TEST(Transforms, SubwordTakesTheBestSegmentation) {
  Example example;
  example.source_text = "In the beginning";
  example.target_text = "God created";
  EXPECT_TRUE(Subword{}.make(materials())->apply(example, nullptr));
  EXPECT_EQ(example.source, small_tokenizer().encode("In the beginning"));
  EXPECT_EQ(example.target, small_tokenizer().encode("God created"));
}

TEST(Transforms, SubwordTokenizesWhatBearsLossAlone) {
  Example example;
  example.target_text = "In the beginning";
  example.loss.assign(7, false);
  example.loss.insert(example.loss.end(), 9, true);
  EXPECT_TRUE(Subword{}.make(materials())->apply(example, nullptr));
  std::vector<std::int32_t> wanted = small_tokenizer().encode("In the ");
  std::vector<bool> loss(wanted.size(), false);
  for (const std::int32_t id : small_tokenizer().encode("beginning")) {
    wanted.push_back(id);
    loss.push_back(true);
  }
  EXPECT_EQ(example.target, wanted);
  EXPECT_EQ(example.loss, loss);
}

TEST(Transforms, AreMadeInTheOrderOfTheCorpusWithATokenizerAmongThem) {
  CorpusConfig corpus{.name = "c", .source = "s", .target = "t"};
  corpus.transforms = {{MaxLength{.source = 1, .target = 1}}, {MaxLength{}}};
  const Pipeline pipeline{corpus, small_tokenizer()};
  ASSERT_THAT(pipeline.transforms(), testing::SizeIs(3));
  EXPECT_EQ(pipeline.transforms()[0]->type(), "subword");
  EXPECT_NE(pipeline.recipe(), (Pipeline{CorpusConfig{.name = "c"}, small_tokenizer()}).recipe());
  Example example;
  example.source_text = "In the beginning";
  example.target_text = "x";
  EXPECT_EQ(pipeline.plan(example).left_out, "max_length");
}

}  // namespace
}  // namespace argosy::data
