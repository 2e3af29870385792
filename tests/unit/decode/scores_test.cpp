#include "decode/scores.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace argosy::decode {
namespace {

struct Line {
  std::string_view hypothesis, reference;
  double bleu, chrf;  // sacreBLEU 2.6.0, each line as a corpus of its own
};

constexpr std::array<Line, 10> lines{{
    {"The cat sat on the mat.", "The cat is sitting on the mat.", 42.38365628278778, 49.6485170311433},
    {"Opens the \"Save As\" dialog, where you can choose 1,000.50 files (max. 3-4).",
     "Opens the Save As dialog where you choose 1,000.50 files (max. 3-4).", 55.65839715607938, 81.00747290941301},
    {"", "empty hypothesis", 0.0, 0.0},
    {"日本語の文 です。", "日本語の文章です。", 0.0, 47.00157440930073},
    {"émoji 😀 & tout — ça va\u00a0!", "émoji 😀 & tout ça va !", 50.0, 78.38104793947423},
    {"x", "x y", 0.0, 55.55555555555556},
    {"a b c d e f g", "a b c d e f g", 100.0, 100.0},
    {"<skipped>&quot;quoted&quot; &lt;tag&gt; 12-14, end..", "\"quoted\" <tag> 12-14, end...", 92.59610786423164,
     47.90982759164182},
    {"trailing\u3000 ", "trailing", 0.0, 100.0},
    {"No match whatsoever here", "zzz qqq", 0.0, 0.0},
}};

TEST(Scores, EqualSacreBleuOnEachLine) {
  for (const Line& line : lines) {
    BleuCounts bleu;
    ChrfCounts chrf;
    bleu.add(line.hypothesis, line.reference);
    chrf.add(line.hypothesis, line.reference);
    EXPECT_NEAR(bleu.score(), line.bleu, 1e-9) << line.hypothesis;
    EXPECT_NEAR(chrf.score(), line.chrf, 1e-9) << line.hypothesis;
  }
}

TEST(Scores, EqualSacreBleuOnTheCorpusHoweverRanksShareIt) {
  std::array<BleuCounts, 2> bleu;
  std::array<ChrfCounts, 2> chrf;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    bleu[i % 2].add(lines[i].hypothesis, lines[i].reference);
    chrf[i % 2].add(lines[i].hypothesis, lines[i].reference);
  }
  for (std::size_t i = 0; i < bleu[0].counts().size(); ++i) bleu[0].counts()[i] += bleu[1].counts()[i];
  for (std::size_t i = 0; i < chrf[0].counts().size(); ++i) chrf[0].counts()[i] += chrf[1].counts()[i];
  EXPECT_NEAR(bleu[0].score(), 66.79217862921033, 1e-9);
  EXPECT_NEAR(chrf[0].score(), 61.1496448063501, 1e-9);
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

TEST(Scores, OfNothingAreZero) {
  EXPECT_EQ(BleuCounts{}.score(), 0.0);
  EXPECT_EQ(ChrfCounts{}.score(), 0.0);
}

}  // namespace
}  // namespace argosy::decode
