#include "data/batcher.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre;

TEST(PairBatch, ShiftsTheTargetAndPadsOnTheRight) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::marian}, 60);  // pad 63
  const std::vector<std::int32_t> s0{5, 6, 0}, t0{7, 0}, s1{8, 0}, t1{9, 10, 11, 0};
  const std::vector<PairIds> examples{{s0, t0, 40}, {s1, t1, 41}};
  const Batch batch = batch_of_pairs(examples, vocabulary);
  EXPECT_EQ(std::tuple(batch.rows, batch.source_width, batch.target_width), std::tuple(2, 3, 4));
  EXPECT_THAT(batch.source, ElementsAre(5, 6, 0, 8, 0, 63));
  EXPECT_THAT(batch.target_input, ElementsAre(63, 7, 63, 63, 63, 9, 10, 11));
  EXPECT_THAT(batch.target_labels, ElementsAre(7, 0, -1, -1, 9, 10, 11, 0));
  EXPECT_THAT(batch.source_lengths, ElementsAre(3, 2));
  EXPECT_THAT(batch.target_lengths, ElementsAre(2, 4));
  EXPECT_THAT(batch.examples, ElementsAre(40, 41));
  EXPECT_EQ(std::tuple(batch.src_tokens, batch.tgt_tokens, batch.padded_tokens), std::tuple(5, 6, 14));

  const Batch wider = batch_of_pairs(examples, vocabulary, 8, 8);
  EXPECT_EQ(std::tuple(wider.source_width, wider.padded_tokens), std::tuple(8, 32));
  EXPECT_TRUE(batch_of_pairs({}, vocabulary).empty());
}

TEST(PairBatch, SaysOfWhichCorpusEachPositionIs) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::marian}, 60);
  const std::vector<std::int32_t> one{5, 0}, two{7, 8, 0};
  std::vector<PairIds> examples{{one, one}, {one, two}};
  EXPECT_TRUE(batch_of_pairs(examples, vocabulary).corpora.empty());
  examples[0].corpus = 3;
  examples[1].corpus = 1;
  EXPECT_THAT(batch_of_pairs(examples, vocabulary).corpora, ElementsAre(3, 3, 0, 1, 1, 1));
}

TEST(PairBatch, RefusesIdsThatAreDead) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::marian}, 60);
  const std::vector<std::int32_t> good{5, 0}, dead{60, 0};
  EXPECT_THROW((void)batch_of_pairs(std::vector<PairIds>{{good, dead, 0}}, vocabulary), Error);
  EXPECT_THROW((void)batch_of_pairs(std::vector<PairIds>{{dead, good, 0}}, vocabulary), Error);
}

TEST(PairBatch, LabelsWhatBearsLossAlone) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::marian}, 60);
  const std::vector<std::int32_t> source{5, 0}, target{7, 8, 9, 0};
  const std::vector<bool> loss{false, true, true, false}, none;
  const Batch batch =
      batch_of_pairs(std::vector<PairIds>{{source, target, 0, &loss}, {source, target, 1, &none}}, vocabulary);
  EXPECT_THAT(batch.target_labels, ElementsAre(-1, 8, 9, -1, 7, 8, 9, 0));
  EXPECT_THAT(batch.target_input, ElementsAre(63, 7, 8, 9, 63, 7, 8, 9));
  EXPECT_EQ(batch.tgt_tokens, 6);
}

TEST(LmBatch, LabelsWhatBearsLossAlone) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::llama}, 60);
  LmBatcher batcher{vocabulary, 2, 4};
  batcher.begin_row();
  batcher.add({.ids = {5, 6, 2}, .loss = {false, true, true}, .size = 3}, 0, 4);
  batcher.begin_row();
  batcher.add({.ids = {6, 2}, .loss = {true, false}, .begin = 1, .size = 3}, 2, 2);  // a part of it
  const Batch batch = batcher.take();
  EXPECT_THAT(batch.target_input, ElementsAre(1, 5, 6, 2, /**/ 6, 2, 2, 2));
  EXPECT_THAT(batch.target_labels, ElementsAre(-1, 6, 2, -1, /**/ -1, -1, -1, -1));
  EXPECT_EQ(batch.tgt_tokens, 2);
  EXPECT_THAT(batch.prompts, ElementsAre(2, 2, 0, 0, /**/ 2, 2, 0, 0)) << "the second row has no label at all";
}

TEST(LmBatch, ThePromptOfADocumentEndsWithThePositionOfItsFirstLabel) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::llama}, 60);
  LmBatcher batcher{vocabulary, 2, 9};
  batcher.begin_row();
  batcher.add({.ids = {5, 6, 7, 8, 9, 2}, .loss = {false, false, true, false, true, true}, .size = 6}, 0,
              5);                                             // two turns
  batcher.add({.ids = {7, 2}, .loss = {}, .size = 2}, 0, 3);  // no prompt
  batcher.begin_row();
  batcher.add({.ids = {8, 9, 2}, .loss = {false, true, true}, .begin = 3, .size = 6}, 4, 3);  // the rest of the first
  const Batch batch = batcher.take();
  EXPECT_THAT(batch.target_labels, ElementsAre(-1, -1, 7, -1, 9, 7, 2, -1, /**/ 9, 2, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(batch.prompts, ElementsAre(3, 3, 3, 0, 0, 6, 0, 0, /**/ 1, 0, 0, 0, 0, 0, 0, 0));
}

TEST(LmBatch, MasksTheFirstLabelOfEachDocumentAndRestartsPositions) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::llama}, 60);
  const DocumentPart first{.ids = {5, 6, 2}, .loss = {}, .size = 3}, second{.ids = {7, 2}, .loss = {}, .size = 2};
  LmBatcher batcher{vocabulary, 2, 9};
  batcher.begin_row();
  batcher.add(first, 0, 4);
  batcher.add(second, 0, 3);
  batcher.begin_row();
  batcher.add(first, 1, 2);
  const Batch batch = batcher.take();
  EXPECT_EQ(batch.target_width, 7);  // cut to the widest row
  EXPECT_THAT(batch.target_input, ElementsAre(1, 5, 6, 2, 1, 7, 2, /**/ 5, 6, 2, 2, 2, 2, 2));
  EXPECT_THAT(batch.target_labels, ElementsAre(5, 6, 2, -1, 7, 2, -1, /**/ 6, 2, -1, -1, -1, -1, -1));
  EXPECT_THAT(batch.segments, ElementsAre(0, 0, 0, 0, 1, 1, 1, /**/ 0, 0, -1, -1, -1, -1, -1));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, /**/ 0, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.target_lengths, ElementsAre(7, 2));
  EXPECT_EQ(std::tuple(batch.tgt_tokens, batch.padded_tokens, batch.source_width), std::tuple(7, 14, 0));
}

TEST(LmBatch, SaysOfWhichCorpusEachPositionIs) {
  const spec::Vocabulary vocabulary = spec::vocabulary_of({spec::TokenLayout::llama}, 60);
  LmBatcher batcher{vocabulary, 2, 9};
  batcher.begin_row();
  batcher.add({.ids = {5, 2}, .loss = {}, .size = 2, .corpus = 2}, 0, 3);
  batcher.add({.ids = {7, 2}, .loss = {}, .size = 2, .corpus = 1}, 0, 2);
  batcher.begin_row();
  batcher.add({.ids = {2}, .loss = {}, .begin = 1, .size = 2, .corpus = 1}, 2, 1);
  EXPECT_THAT(batcher.take().corpora, ElementsAre(2, 2, 2, 1, 1, /**/ 1, 0, 0, 0, 0));
}

}  // namespace
}  // namespace argosy::data
