#include "tokenizer/pipeline.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <thread>

#include "support/tokenizer_files.hpp"
#include "tokenizer/scores.hpp"

namespace argosy::tokenizer {
namespace {

using test::changed;
using test::small_pipeline;
using testing::ElementsAre;
using testing::IsEmpty;

struct Example {
  const char* file;
  std::vector<std::int32_t> ids;  // of the library tokenizers 0.23 for the line of the file
  const char* text;
};

const std::array examples{
    Example{"byte_fallback",
            {278, 259, 277, 279, 270, 13, 259, 233, 154, 168, 259, 1, 280, 275, 281, 280, 267, 263},
            "the hello\n 日   wor  ld"},
    Example{"byte_level",
            {83, 257, 265, 263, 269, 6, 82, 268, 66, 64, 69, 264, 220, 262, 19, 267, 198, 198},
            "the there  Word's<t>café 1234\n\n"},
    Example{"unigram", {3, 2, 23, 3, 9, 21, 3, 6, 4, 9, 22, 3, 2, 19, 1}, "he fish café  the"},
    Example{"words", {43, 46, 46, 37, 37, 46, 38, 28, 0, 44, 39, 40, 48, 5, 0, 0}, "the no no . . no , 1 12 ! ? e"}};

class EachKind : public testing::TestWithParam<Example> {};

TEST_P(EachKind, GivesTheIdsAndTheTextOfTheLibrary) {
  const Pipeline pipeline = small_pipeline(GetParam().file);
  const std::vector<std::int32_t> ids = pipeline.encode(test::small_file(GetParam().file).second);
  EXPECT_EQ(ids, GetParam().ids);
  EXPECT_EQ(pipeline.decode(ids), GetParam().text);
}

TEST_P(EachKind, SpellsEachIdSoThatItIsFoundAgain) {
  const Pipeline pipeline = small_pipeline(GetParam().file);
  for (std::int32_t id = 0; id < pipeline.size(); ++id) EXPECT_EQ(pipeline.id_of(pipeline.piece(id)), id);
  EXPECT_EQ(pipeline.id_of("no such piece"), std::nullopt);
}

TEST_P(EachKind, TakesTheEmptyTextAndIdsThatAreNone) {
  const Pipeline pipeline = small_pipeline(GetParam().file);
  EXPECT_THAT(pipeline.encode(""), IsEmpty());
  EXPECT_EQ(pipeline.decode({}), "");
  const std::vector<std::int32_t> none{-1, pipeline.size()};
  EXPECT_EQ(pipeline.decode(none), "");
}

TEST_P(EachKind, CountsABrokenByteAsAReplacementCharacter) {
  const Pipeline pipeline = small_pipeline(GetParam().file);
  EXPECT_EQ(pipeline.encode("a\xFFi"), pipeline.encode("a\uFFFDi"));
  EXPECT_EQ(pipeline.encode("a\xE6\x97"), pipeline.encode("a\uFFFD\uFFFD"));
}

TEST_P(EachKind, GivesTheSameOnManyThreads) {
  const Pipeline pipeline = small_pipeline(GetParam().file);
  std::array<std::size_t, 4> wrong{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t& mine : wrong)
      threads.emplace_back([&mine, &pipeline] {
        for (int i = 0; i < 200; ++i) {
          const auto ids = pipeline.encode(test::small_file(GetParam().file).second);
          mine += ids != GetParam().ids || pipeline.decode(ids) != GetParam().text;
        }
      });
  }
  EXPECT_THAT(wrong, testing::Each(0U));
}

INSTANTIATE_TEST_SUITE_P(All, EachKind, testing::ValuesIn(examples),
                         [](const auto& kind) { return std::string{kind.param.file}; });

TEST(Pipeline, TellsWhatSurroundsAText) {
  EXPECT_THAT(small_pipeline("byte_level").prefix(), ElementsAre(266));
  EXPECT_THAT(small_pipeline("byte_level").suffix(), IsEmpty());
  EXPECT_THAT(small_pipeline("unigram").prefix(), IsEmpty());
  EXPECT_THAT(small_pipeline("unigram").suffix(), ElementsAre(1));
  EXPECT_THAT(small_pipeline("words").prefix(), ElementsAre(47));
  EXPECT_THAT(small_pipeline("words").suffix(), ElementsAre(48));
}

TEST(Pipeline, KnowsScoresAndSpecialPieces) {
  const Pipeline unigram = small_pipeline("unigram"), bpe = small_pipeline("byte_level");
  EXPECT_FLOAT_EQ(unigram.score(19), -1.5F);
  EXPECT_TRUE(unigram.is_special(0));
  EXPECT_FALSE(unigram.is_special(3));
  EXPECT_EQ(unigram.unknown(), 2);
  EXPECT_EQ(bpe.score(*bpe.id_of("a")), 0);
  EXPECT_EQ(bpe.score(*bpe.id_of("\u0120t")), 0);     // the first merge
  EXPECT_EQ(bpe.score(*bpe.id_of("\u0120the")), -2);  // the third
  EXPECT_EQ(bpe.score(*bpe.id_of("<t>")), 0);         // added
  EXPECT_EQ(bpe.unknown(), std::nullopt);
}

TEST(Pipeline, CutsLongRunsOfBlanks) {  // which ICU refuses unless its stack may grow
  constexpr std::size_t size = 600'000;
  const Pipeline pipeline = small_pipeline("byte_level");
  for (const char blank : {' ', '\n'})
    EXPECT_EQ(pipeline.decode(pipeline.encode(std::string(size, blank))).size(), size);
}

TEST(AddedTokens, AreFoundAtTheLeftAndAsLongAsPossible) {
  boost::json::array tokens;
  std::int64_t id = 266;  // after the pieces of the model
  for (const char* content : {"ab", "abc", "bcd", "d_"})
    tokens.push_back({{"id", id++}, {"content", content}, {"normalized", false}, {"special", false}});
  const Pipeline pipeline = changed("byte_level", {{"/added_tokens", tokens}, {"/post_processor", nullptr}});
  EXPECT_THAT(pipeline.encode("abcd_"), ElementsAre(267, 269));
  EXPECT_THAT(pipeline.encode("abbcd"), ElementsAre(266, 268));
}

TEST(AddedTokens, StandAloneOrTakeBlanksAsTheySay) {
  const Pipeline pipeline = small_pipeline("byte_level");
  const std::int32_t t = *pipeline.id_of("<t>"), word = *pipeline.id_of("Word");
  EXPECT_THAT(pipeline.encode(" \n<t>\t <t>  "), ElementsAre(t, t));
  EXPECT_THAT(pipeline.encode("Word"), ElementsAre(word));
  EXPECT_THAT(pipeline.encode("a-Word!"), testing::Contains(word));
  EXPECT_THAT(pipeline.encode("aWord"), testing::Not(testing::Contains(word)));
  EXPECT_THAT(pipeline.encode("Word_"), testing::Not(testing::Contains(word)));
}

TEST(Bpe, TakesAWholePieceBeforeMergesOnlyIfTheFileSaysSo) {
  EXPECT_EQ(small_pipeline("byte_level").encode(" there").size(), 1U);
  EXPECT_GT(changed("byte_level", {{"/model/ignore_merges", false}}).encode(" there").size(), 1U);
}

TEST(Bpe, MakesOneUnknownPieceOfSeveralCharactersOnlyIfTheFileSaysSo) {
  const auto words = [](bool fuses) { return changed("words", {{"/model/fuse_unk", fuses}}); };
  EXPECT_THAT(words(false).encode("日本a日"), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(words(true).encode("日本a日"), ElementsAre(0, 1, 0));
}

/// A BPE model of a, b, c, ab, bc, abc, aa with these merges.
Pipeline with_merges(const boost::json::array& merges) {
  const boost::json::object vocabulary{{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}, {"aa", 6}};
  return Pipeline::load(boost::json::serialize(boost::json::object{
                            {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}}),
                        "merges");
}

TEST(Bpe, MergesTheBestPairFirstAndOfEqualOnesTheLeftmost) {
  EXPECT_THAT(with_merges({"a b", "b c"}).encode("abc"), ElementsAre(3, 2));
  EXPECT_THAT(with_merges({"b c", "a b"}).encode("abc"), ElementsAre(0, 4));
  EXPECT_THAT(with_merges({"b c", "a b", "a bc"}).encode("abcab"), ElementsAre(5, 3));
  EXPECT_THAT(with_merges({"a a"}).encode("aaaaa"), ElementsAre(6, 6, 0));
}

TEST(Bpe, ScoresAPieceByItsFirstMerge) { EXPECT_EQ(with_merges({"a b", "b c", "a bc", "ab c"}).score(5), -2); }

/// A unigram model of <unk>, a, b and the given pieces, without other stages.
Pipeline with_pieces(double score_of_a, std::initializer_list<std::pair<const char*, double>> more) {
  boost::json::array pieces{boost::json::array{"<unk>", 0.0}, boost::json::array{"a", score_of_a},
                            boost::json::array{"b", -1.0}};
  for (const auto& [piece, score] : more) pieces.push_back(boost::json::array{piece, score});
  return Pipeline::load(
      boost::json::serialize(boost::json::object{{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}}}),
      "pieces");
}

TEST(Scores, HaveTheBitsOfTheLibrary) {
  const std::pair<const char*, double> numbers[] = {{"-2.0122928619384766", -0x1.0192d00000001p+1},  // rounds otherwise
                                                    {"-9.305169105529785", -0x1.29c3f1fffffffp+3},
                                                    {"-0.1", -0.1},
                                                    {"0", 0.0},
                                                    {"-7", -7.0},
                                                    {"12345678901234567890123", 0x1.4ea15b273b38ap+73},
                                                    {"0.12345678901234567890123", 0x1.f9add3746f65fp-4},
                                                    {"99999999999999999999.5e-10", 0x1.2a05f20000000p+33},
                                                    {"18446744073709551616", 0x1p+64},
                                                    {"1e-5", 1e-5},
                                                    {"-2.5E+3", -2500.0},
                                                    {"4.9e-324", 0x1p-1074},
                                                    {"123456789e-330", 0x19p-1074},
                                                    {"1e-400", 0.0},
                                                    {"1e-99999999999999999999", 0.0}};
  for (const auto& [text, value] : numbers) EXPECT_EQ(as_serde_json(text), value) << text;
}

TEST(Scores, AreThoseOfTheVocabularyAlone) {
  EXPECT_THAT(
      unigram_scores(R"({"vocab": [["x", 1]], "added_tokens": [{"id": 2}], "model": {"a": [[3]], "vocab": [["y", 4]],
                                 "vocab": [["a", -1.5], ["b", 2]], "b": [[5]]}, "c": {"vocab": [["z", 6]]}})"),
      ElementsAre(-1.5, 2));
}

TEST(Unigram, PricesAnUnknownCharacterTenBelowTheWorstPiece) {
  EXPECT_THAT(with_pieces(9.5, {{"日a", -20}}).encode("日a"), ElementsAre(3));
  EXPECT_THAT(with_pieces(10.5, {{"日a", -20}}).encode("日a"), ElementsAre(0, 1));
}

TEST(Unigram, MakesOneUnknownPieceOfCharactersInARow) {
  EXPECT_THAT(with_pieces(-1, {}).encode("日本a日"), ElementsAre(0, 1, 0));
}

TEST(Unigram, CountsTheLastOfEqualPieces) {
  EXPECT_THAT(with_pieces(-1, {{"a", -2.0}}).encode("ab"), ElementsAre(3, 2));
}

TEST(Unigram, HasAnIdForAnEmptyPieceWhichNoTextContains) {
  const Pipeline pipeline = with_pieces(-1, {{"", 5.0}});
  EXPECT_EQ(pipeline.id_of(""), 3);
  EXPECT_EQ(with_pieces(-1, {}).id_of(""), std::nullopt);
  EXPECT_THAT(pipeline.encode("ab"), ElementsAre(1, 2));
}

TEST(Unigram, UsesBytesForUnknownCharactersIfItHasThem) {
  boost::json::value whole = boost::json::parse(test::small_file("unigram").first);
  boost::json::array& pieces = whole.at_pointer("/model/vocab").as_array();
  const auto first = static_cast<std::int32_t>(pieces.size());
  for (const char* piece : {"<0xE6>", "<0x97>", "<0xA5>"}) pieces.push_back(boost::json::array{piece, -9.0});
  const auto encoded = [&](const char* text) {
    return Pipeline::load(boost::json::serialize(whole), "unigram").encode(text);
  };
  EXPECT_THAT(encoded("日日"), ElementsAre(3, 2));
  whole.at_pointer("/model/byte_fallback") = true;
  EXPECT_THAT(encoded("日日"), ElementsAre(3, first, first + 1, first + 2, first, first + 1, first + 2));
  EXPECT_THAT(encoded("本"), ElementsAre(3, 2));  // whose bytes are not all there
}

TEST(Metaspace, MarksTheFirstStretchOrAllOrNone) {
  const auto encoded = [](const char* scheme) {
    return changed("unigram", {{"/pre_tokenizer/prepend_scheme", scheme}}).encode("a</s>a");
  };
  const std::int32_t a = 4;
  EXPECT_THAT(encoded("first"), ElementsAre(3, a, 1, a));
  EXPECT_THAT(encoded("always"), ElementsAre(3, a, 1, 3, a));
  EXPECT_THAT(encoded("never"), ElementsAre(a, 1, a));
}

TEST(Charsmap, MapsShortClustersByTheirShortestKnownPrefix) {
  const Pipeline pipeline = small_pipeline("unigram");
  EXPECT_EQ(pipeline.encode("A"), pipeline.encode("a"));
  EXPECT_EQ(pipeline.encode("A\u0301"), pipeline.encode("a"));  // a cluster of 3 bytes that begins with A
  EXPECT_EQ(pipeline.encode("A\u0301\u0301\u0301"), pipeline.encode("a\u0301\u0301\u0301"));  // too long: by characters
  EXPECT_EQ(pipeline.encode("e\u0301"), pipeline.encode("\u00e9"));
  EXPECT_EQ(pipeline.encode("a\u00adb"), pipeline.encode("ab"));  // a rule that removes
}

TEST(Decoder, ReplacesBytesThatAreNoText) {
  const Pipeline fallback = small_pipeline("byte_fallback"), level = small_pipeline("byte_level");
  const std::vector<std::int32_t> cut{3 + 0xE6, 3 + 0x97, 278};
  EXPECT_EQ(fallback.decode(cut), "\uFFFD\uFFFD the");  // one for each byte
  const std::vector<std::int32_t> pieces{*level.id_of("\u00e6"), *level.id_of("\u0139"), *level.id_of("a")};
  EXPECT_EQ(level.decode(pieces), "\uFFFDa");  // one for the longest beginning of a character
}

}  // namespace
}  // namespace argosy::tokenizer
