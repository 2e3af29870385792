#include "decode/scores.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "core/version.hpp"
#include "decode/ter.hpp"

namespace argosy::decode {
namespace {

struct Line {
  std::string_view hypothesis, reference;
  double bleu, chrf, ter;  // sacreBLEU 2.6.0, each line as a corpus of its own
};

constexpr std::array<Line, 10> lines{{
    {"The cat sat on the mat.", "The cat is sitting on the mat.", 42.38365628278778, 49.6485170311433,
     28.57142857142857},
    {"Opens the \"Save As\" dialog, where you can choose 1,000.50 files (max. 3-4).",
     "Opens the Save As dialog where you choose 1,000.50 files (max. 3-4).", 55.65839715607938, 81.00747290941301,
     33.33333333333333},
    {"", "empty hypothesis", 0.0, 0.0, 100.0},
    {"日本語の文 です。", "日本語の文章です。", 0.0, 47.00157440930073, 200.0},
    {"émoji 😀 & tout — ça va\u00a0!", "émoji 😀 & tout ça va !", 50.0, 78.38104793947423, 14.285714285714285},
    {"x", "x y", 0.0, 55.55555555555556, 50.0},
    {"a b c d e f g", "a b c d e f g", 100.0, 100.0, 0.0},
    {"<skipped>&quot;quoted&quot; &lt;tag&gt; 12-14, end..", "\"quoted\" <tag> 12-14, end...", 92.59610786423164,
     47.90982759164182, 75.0},
    {"trailing\u3000 ", "trailing", 0.0, 100.0, 0.0},
    {"No match whatsoever here", "zzz qqq", 0.0, 0.0, 200.0},
}};

TEST(Scores, EqualSacreBleuOnEachLine) {
  for (const Line& line : lines) {
    BleuCounts bleu;
    ChrfCounts chrf;
    TerCounts ter;
    bleu.add(line.hypothesis, line.reference);
    chrf.add(line.hypothesis, line.reference);
    ter.add(line.hypothesis, line.reference);
    EXPECT_NEAR(bleu.score(), line.bleu, 1e-9) << line.hypothesis;
    EXPECT_NEAR(chrf.score(), line.chrf, 1e-9) << line.hypothesis;
    EXPECT_NEAR(ter.score(), line.ter, 1e-9) << line.hypothesis;
  }
}

TEST(Scores, EqualSacreBleuOnTheCorpusHoweverRanksShareIt) {
  std::array<BleuCounts, 2> bleu;
  std::array<ChrfCounts, 2> chrf;
  std::array<TerCounts, 2> ter;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    bleu[i % 2].add(lines[i].hypothesis, lines[i].reference);
    chrf[i % 2].add(lines[i].hypothesis, lines[i].reference);
    ter[i % 2].add(lines[i].hypothesis, lines[i].reference);
  }
  for (std::size_t i = 0; i < bleu[0].counts().size(); ++i) bleu[0].counts()[i] += bleu[1].counts()[i];
  for (std::size_t i = 0; i < chrf[0].counts().size(); ++i) chrf[0].counts()[i] += chrf[1].counts()[i];
  for (std::size_t i = 0; i < ter[0].counts().size(); ++i) ter[0].counts()[i] += ter[1].counts()[i];
  EXPECT_NEAR(bleu[0].score(), 66.79217862921033, 1e-9);
  EXPECT_NEAR(chrf[0].score(), 61.1496448063501, 1e-9);
  EXPECT_NEAR(ter[0].score(), 42.22222222222222, 1e-9);
}

TEST(Scores, ByHand) {
  BleuCounts smoothed;  // 3 of 5 words; of the 4, 3 and 2 longer ones none: 1/2, 1/4, 1/8 of one
  smoothed.add("a b c d e", "a x c y e");
  EXPECT_NEAR(smoothed.score(), 100 * std::pow(3.0 / 5 / (2 * 4) / (4 * 3) / (8 * 2), 0.25), 1e-9);
  BleuCounts entity;
  entity.add("AT&amp;T is here today", "AT&T is here today");
  EXPECT_NEAR(entity.score(), 100, 1e-9);
  ChrfCounts lengths;  // bigrams of the first do not count, since its reference has none: P = (3/8 + 1)/2, R = 1
  lengths.add("abcdef", "a");
  lengths.add("ab", "ab");
  EXPECT_NEAR(lengths.score(), 100 * 5 * 0.6875 / (4 * 0.6875 + 1), 1e-9);
}

std::int64_t edits_of(std::string_view hypothesis, std::string_view reference) {
  TerCounts ter;
  ter.add(hypothesis, reference);
  return ter.counts()[0];
}

TEST(Scores, AnEditInsertsRemovesReplacesOrMovesWords) {
  EXPECT_EQ(edits_of("b c d a", "a b c d"), 1) << "one move";
  EXPECT_EQ(edits_of("saudi arabia denied this week information published in the american new york times",
                     "this week the saudis denied information published in the new york times"),
            4)
      << "the example of Snover et al.: one word moved there, two replaced, one removed";
  EXPECT_EQ(edits_of("ΌΔΟΣ İ", "όδος i̇"), 0) << "case, of a final sigma as well";
  TerCounts without_words;
  without_words.add("", "");
  EXPECT_EQ(without_words.score(), 0);
  without_words.add("x", "");
  EXPECT_EQ(without_words.score(), 100);
  without_words.add("y", "y");
  EXPECT_EQ(without_words.score(), 100) << "one edit for one word";
}

TEST(Scores, TakeAnyBytesAndLongLines) {
  EXPECT_EQ(edits_of("\xff\xc3", "\xff\xc3"), 0);
  EXPECT_EQ(edits_of("a \xff", "a \xe3\x80"), 0) << "what is not UTF-8 is U+FFFD";
  std::string long_line, longer_line, other_line;
  for (int i = 0; i < 5000; ++i) {
    long_line += i * i % 7 < 3 ? "a " : "b ";
    longer_line += i * i % 7 < 3 ? "a " : "b ";
    other_line += i * i % 11 < 5 ? "b " : "a ";
    if (i % 1000 == 999) longer_line += "c ";
  }
  EXPECT_EQ(edits_of(long_line, longer_line), 5);
  EXPECT_GT(edits_of(long_line, other_line), 500) << "and the search for moves ends";
}

TEST(Scores, TheSignatureNamesTheProgram) {
  EXPECT_EQ(signature_of(TerCounts::settings),
            "TER|nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:argosy-" + std::string(version()));
}

TEST(Scores, OfNothingAreZero) {
  EXPECT_EQ(BleuCounts{}.score(), 0.0);
  EXPECT_EQ(ChrfCounts{}.score(), 0.0);
  EXPECT_EQ(TerCounts{}.score(), 0.0);
}

}  // namespace
}  // namespace argosy::decode
