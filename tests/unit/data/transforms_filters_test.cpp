#include <gmock/gmock.h>

#include <chrono>
#include <limits>
#include <optional>

#include "core/random.hpp"
#include "data/data_config.hpp"
#include "tokenizer/unicode.hpp"
#include "transforms_support.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr;

/// Whether the pair stays. What it leaves out it has a reason for, and what it keeps it does not change.
template <class Config>
bool keeps(const Config& config, const std::string& source, const std::string& target) {
  const auto filter = config.make(materials());
  EXPECT_EQ(filter->type(), Config::type);
  EXPECT_EQ(filter->stage(), Stage::text);
  EXPECT_FALSE(filter->is_random());
  Example example = pair_of(source, target);
  const bool kept = filter->apply(example, nullptr);
  EXPECT_EQ(filter->fault_of(example).empty(), kept) << source << " | " << target;
  EXPECT_EQ(example.source_text, source);
  EXPECT_EQ(example.target_text, target);
  return kept;
}

TEST(LengthRatioFilter, ComparesWordsBothWays) {
  EXPECT_TRUE(keeps(LengthRatio{}, "a b c", "x"));
  EXPECT_FALSE(keeps(LengthRatio{}, "a b c d", "x"));
  EXPECT_FALSE(keeps(LengthRatio{}, "x", "a b c d"));
  EXPECT_TRUE(keeps(LengthRatio{}, "  a\u00a0 b \t c  ", " x ")) << "white space of any kind and number";
  EXPECT_FALSE(keeps(LengthRatio{}, "a\u3000b\u2003c\u00a0d", "x"));
  EXPECT_FALSE(keeps(LengthRatio{.threshold = 1.4}, "a b c", "x y"));
  EXPECT_TRUE(keeps(LengthRatio{.threshold = 1.5}, "a b c", "x y"));
  EXPECT_TRUE(keeps(LengthRatio{}, "a b c d", "")) << "empty sides are another reason";
  EXPECT_TRUE(keeps(LengthRatio{}, "a b c d", " "));
}

TEST(TerminalPunctuationFilter, ScoresWhatBothSidesEndWith) {
  // |a - b| + (a - 1)+ + (b - 1)+ + 1 = 7 and 8; -ln 7 = -1.95, -ln 8 = -2.08
  EXPECT_TRUE(keeps(TerminalPunctuation{}, "a. b. c. d.", "e."));
  EXPECT_FALSE(keeps(TerminalPunctuation{}, "a. b. c. d.", "e"));
  EXPECT_FALSE(keeps(TerminalPunctuation{}, "f", "a? b! c… d. e."));
  EXPECT_TRUE(keeps(TerminalPunctuation{.threshold = 0}, "a.", "b?"));
  EXPECT_FALSE(keeps(TerminalPunctuation{.threshold = 0}, "a.", "b"));
  EXPECT_TRUE(keeps(TerminalPunctuation{.threshold = -0.7}, "a.", "b"));  // -ln 2
  EXPECT_TRUE(keeps(TerminalPunctuation{.threshold = -1.1}, "a. b.", "a. b.")) << "surplus of both: -ln 3";
  EXPECT_FALSE(keeps(TerminalPunctuation{.threshold = -1}, "a. b.", "a. b."));
}

TEST(NumeralsFilter, ComparesMultisetsOfDigits) {
  EXPECT_TRUE(keeps(Numerals{}, "no digits", "none"));
  EXPECT_TRUE(keeps(Numerals{}, "12 of 300", "3 and 21")) << "order and zeros do not matter";
  EXPECT_FALSE(keeps(Numerals{}, "1999", "no year"));
  EXPECT_FALSE(keeps(Numerals{}, "1", "111111")) << "2 / 7";
  EXPECT_TRUE(keeps(Numerals{}, "1", "111")) << "2 / 4";
  EXPECT_FALSE(keeps(Numerals{.threshold = .51}, "1", "111"));
  EXPECT_TRUE(keeps(Numerals{.threshold = 1}, "1789", "١٧٨٩")) << "7 is 7 in any script";
  EXPECT_TRUE(keeps(Numerals{.threshold = 1}, "100", "1"));
}

TEST(PunctuationFilter, MeasuresEachSide) {
  EXPECT_TRUE(keeps(Punctuation{}, "ab 12", "ab"));
  EXPECT_FALSE(keeps(Punctuation{}, "ab 123", "ab"));
  EXPECT_FALSE(keeps(Punctuation{}, "ab", "ab — € ١"));
  EXPECT_TRUE(keeps(Punctuation{}, "äß ?!", "ab")) << "characters are counted, not bytes";
  EXPECT_FALSE(keeps(Punctuation{.threshold = 0}, "ab.", "ab"));
  EXPECT_TRUE(keeps(Punctuation{.threshold = 1}, "...", "123"));
  EXPECT_TRUE(keeps(Punctuation{}, "a+", "हिन्दी"));
  EXPECT_TRUE(keeps(Punctuation{}, "", "ab")) << "a language model has no source";
}

TEST(ScriptFilter, MeasuresTheLettersOfASide) {
  const Script both{.source = {"Latin"}, .target = {"Cyrillic"}};
  EXPECT_TRUE(keeps(both, "Straße 7, µ!", "Улица 7, (!)")) << "only letters count, and only those of a script";
  EXPECT_FALSE(keeps(both, "Straße", "Street"));
  EXPECT_FALSE(keeps(both, "Улица", "Улица"));
  EXPECT_FALSE(keeps(both, "Straße", "Улица x"));
  const Script most{.source = {}, .target = {"cyrl"}, .threshold = .75};
  EXPECT_TRUE(keeps(most, "any", "абв x"));
  EXPECT_FALSE(keeps(most, "any", "аб x"));
  EXPECT_TRUE(keeps(Script{.source = {"Han", "Hiragana", "Katakana"}}, "東京タワーへ", "x"));
  EXPECT_FALSE(keeps(Script{.source = {"Han", "Hiragana"}}, "東京タワーへ", "x"));
  EXPECT_TRUE(keeps(both, "1984", "«»")) << "no letters";
}

TEST(DuplicateTargetFilter, ComparesTheSides) {
  EXPECT_FALSE(keeps(DuplicateTarget{}, "Ärger", "Ärger"));
  EXPECT_TRUE(keeps(DuplicateTarget{}, "Ärger", "ärger"));
  EXPECT_FALSE(keeps(DuplicateTarget{.ignore_case = true}, "Ärger", "äRGER"));
  EXPECT_TRUE(keeps(DuplicateTarget{.ignore_case = true}, "Ärger", "Anger"));
  EXPECT_TRUE(keeps(DuplicateTarget{}, "", ""));
}

TEST(RepetitionFilter, FindsStringsThatAreRepeated) {
  EXPECT_TRUE(keeps(Repetition{}, "abcabc", "x")) << "one copy";
  EXPECT_FALSE(keeps(Repetition{}, "abcabcabc", "x"));
  EXPECT_FALSE(keeps(Repetition{}, "x", "so on and on and on and"));
  EXPECT_FALSE(keeps(Repetition{}, "abc  abc abc", "x")) << "spaces between copies may differ";
  EXPECT_TRUE(keeps(Repetition{}, "ab c a bc abc", "x")) << "those inside may not";
  EXPECT_TRUE(keeps(Repetition{}, "ababab", "x")) << "ab is too short, and abab has no two copies";
  EXPECT_FALSE(keeps(Repetition{}, "ab ab ab ", "x")) << "'ab ' has three characters";
  EXPECT_TRUE(keeps(Repetition{}, "ab ab ab", "x"));
  EXPECT_FALSE(keeps(Repetition{}, "aaaaaaaaa", "x"));
  EXPECT_FALSE(keeps(Repetition{}, "für für\u00a0für", "x")) << "three characters, four bytes";
  EXPECT_FALSE(keeps(Repetition{.count = 1, .min = 1, .max = 1}, "hello", "x"));
  EXPECT_TRUE(keeps(Repetition{.count = 1, .min = 1, .max = 1}, "helo", "x"));
  const std::string sentence = "In the beginning God created the heaven and the earth. ";
  EXPECT_FALSE(keeps(Repetition{}, sentence + sentence + sentence, "x"));
  EXPECT_TRUE(keeps(Repetition{.max = 50}, sentence + sentence + sentence, "x"));
  const auto filter = Repetition{}.make(materials());
  EXPECT_THAT(filter->fault_of(pair_of("so on and on and on and", "")), HasSubstr("\"on and\""));
}

/// The definition, taken literally.
bool repeats(const Repetition& config, const std::u32string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (auto size = static_cast<std::size_t>(config.min); size <= static_cast<std::size_t>(config.max); ++size) {
      if (text[i] == U' ' || i + size > text.size()) break;
      std::size_t at = i + size;
      std::int64_t copies = 0;
      for (;; ++copies) {
        while (at < text.size() && text[at] == U' ') ++at;
        if (text.substr(at, size) != text.substr(i, size)) break;
        at += size;
      }
      if (copies >= config.count) return true;
    }
  }
  return false;
}

TEST(RepetitionFilter, FindsWhatItsDefinitionSays) {
  RandomStream random(1, 2);
  int found = 0;
  for (int round = 0; round < 20000; ++round) {
    const Repetition config{.count = 1 + static_cast<std::int64_t>(random.below(3)),
                            .min = 1 + static_cast<std::int64_t>(random.below(4)),
                            .max = 4 + static_cast<std::int64_t>(random.below(5))};
    std::u32string text;
    const auto letters = 1 + random.below(3), size = random.below(24);
    for (std::uint64_t i = 0; i < size; ++i)
      text += random.below(3) == 0 ? U' ' : U'a' + static_cast<char32_t>(random.below(letters));
    std::string utf8;
    for (const char32_t c : text) tokenizer::append_utf8(utf8, c);
    const bool wanted = repeats(config, text);
    found += wanted ? 1 : 0;
    Example example = pair_of(utf8, "x");
    ASSERT_EQ(config.make(materials())->apply(example, nullptr), !wanted)
        << "'" << utf8 << "' " << config.count << " " << config.min << " " << config.max;
  }
  EXPECT_GT(found, 2000);
  EXPECT_LT(found, 18000);
}

double seconds_of(const Transform& filter, const std::string& text) {
  Example example = pair_of(text, text);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(filter.apply(example, nullptr)) << filter.fault_of(example);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Filters, TakeTimeThatGrowsWithTheLine) {
  RandomStream random(1, 2);
  std::string letters, nearly;
  for (int i = 0; i < 1000000; ++i) letters += static_cast<char>('a' + random.below(26));
  for (int i = 0; nearly.size() < 1000000; ++i)
    nearly += std::string(2, 'a') + static_cast<char>('b' + random.below(2));
  const auto repetition = Repetition{}.make(materials()), numerals = Numerals{}.make(materials()),
             ratio = LengthRatio{}.make(materials()), punctuation = Punctuation{}.make(materials());
  constexpr double slow_machine_s = 5;  // sanitizers included; a scan of all pairs of places would take hours
  for (const auto* filter : {repetition.get(), numerals.get(), ratio.get(), punctuation.get()})
    EXPECT_LT(seconds_of(*filter, letters), slow_machine_s) << filter->type();
  EXPECT_LT(seconds_of(*Repetition{.count = 60}.make(materials()), nearly), slow_machine_s);
  double fastest = 1;
  for (int i = 0; i < 20; ++i) fastest = std::min(fastest, seconds_of(*repetition, letters.substr(0, 1000)));
  RecordProperty("repetition_of_1000_characters_us", std::to_string(1e6 * fastest / 2));
}

TEST(Filters, HaveRecipesOfAllTheirKeys) {
  EXPECT_NE(recipe_of(LengthRatio{}), recipe_of(LengthRatio{.threshold = 2}));
  EXPECT_NE(recipe_of(TerminalPunctuation{}), recipe_of(TerminalPunctuation{.threshold = -1}));
  EXPECT_NE(recipe_of(Numerals{}), recipe_of(Numerals{.threshold = 1}));
  EXPECT_NE(recipe_of(Punctuation{}), recipe_of(Punctuation{.threshold = 1}));
  EXPECT_NE(recipe_of(DuplicateTarget{}), recipe_of(DuplicateTarget{.ignore_case = true}));
  for (const Repetition& other : {Repetition{.count = 3}, Repetition{.min = 4}, Repetition{.max = 9}})
    EXPECT_NE(recipe_of(other), recipe_of(Repetition{}));
  const Script script{.source = {"Latin"}};
  for (const Script& other :
       {Script{.source = {"Han"}}, Script{.target = {"Latin"}}, Script{.source = {"Latin"}, .threshold = .5}})
    EXPECT_NE(recipe_of(other), recipe_of(script));
  EXPECT_NE(recipe_of(LengthRatio{.threshold = .5}), recipe_of(Numerals{}));
}

TEST(Filters, RefuseNumbersThatMeanNothing) {
  EXPECT_EQ(problems_of(LengthRatio{}) + problems_of(TerminalPunctuation{}) + problems_of(Numerals{}) +
                problems_of(Punctuation{}) + problems_of(Repetition{}) + problems_of(Script{.source = {"Latn"}}),
            "");
  EXPECT_EQ(problems_of(LengthRatio{.threshold = .9}), "/threshold a number from 1 to 1000000\n");
  EXPECT_EQ(problems_of(TerminalPunctuation{.threshold = 1}), "/threshold a number from -1000 to 0\n");
  EXPECT_EQ(problems_of(Numerals{.threshold = 1.1}), "/threshold a number from 0 to 1\n");
  EXPECT_EQ(problems_of(Punctuation{.threshold = -1}), "/threshold a number from 0 to 1\n");
  EXPECT_EQ(problems_of(Repetition{.count = 0}), "/count 1 to 1000\n");
  EXPECT_EQ(problems_of(Repetition{.min = 0}), "/min 1 to 1000\n");
  EXPECT_EQ(problems_of(Repetition{.max = 1001}), "/max 1 to 1000\n");
  EXPECT_EQ(problems_of(Repetition{.min = 9, .max = 8}), "/max at least min (9)\n");
  EXPECT_EQ(problems_of(Script{.source = {"Klingon"}}),
            "/source/0 the name of a script in Unicode, such as Latin or Cyrillic\n");
  EXPECT_EQ(problems_of(Script{}), "/source scripts of the source or of the target\n");
  EXPECT_EQ(problems_of(Script{.target = {"Han"}, .threshold = 2}), "/threshold a number from 0 to 1\n");
}

TEST(Filters, ThatComparePairsNeedPairs) {
  CorpusConfig corpus{.name = "lm", .source = "text"};
  corpus.transforms = {{Repetition{}}, {LengthRatio{}}};
  EXPECT_EQ(problems_of(corpus), "/transforms/1 a transform for one side, since the corpus has no target\n");
  corpus.target = "other";
  EXPECT_EQ(problems_of(corpus), "");
}

}  // namespace
}  // namespace argosy::data
