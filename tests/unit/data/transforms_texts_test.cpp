#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <set>

#include "data/data_config.hpp"
#include "data/pipeline.hpp"
#include "tokenizer/unicode.hpp"
#include "transforms_support.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr, testing::IsEmpty, testing::SizeIs;

std::string in_case(CaseKind to, const std::string& text) {
  Example example = pair_of(text, "");
  EXPECT_TRUE(LetterCase{.to = to}.make(materials())->apply(example, nullptr));
  return example.source_text;
}

TEST(LetterCase, FollowsUnicode) {
  EXPECT_EQ(in_case(CaseKind::lower, "STRASSE ÄÉ ΌΣΟΣ 日本"), "strasse äé όσος 日本")
      << "a sigma that ends a word is another one";
  EXPECT_EQ(in_case(CaseKind::upper, "Straße äé ﬁ"), "STRASSE ÄÉ FI");
  EXPECT_EQ(in_case(CaseKind::title, "in  the (bEGINNING) élan\u00a0ǆx o'neill 3d"),
            "In  The (Beginning) Élan\u00a0ǅx O'neill 3D");
  EXPECT_EQ(in_case(CaseKind::title, ""), "");
  EXPECT_EQ(in_case(CaseKind::title, " ab "), " Ab ");
}

TEST(LetterCase, ChangesTheSidesItIsTold) {
  for (const auto& [sides, source, target] :
       {std::tuple{Sides::both, "AB", "CD"}, {Sides::source, "AB", "cd"}, {Sides::target, "ab", "CD"}}) {
    Example example = pair_of("ab", "cd");
    EXPECT_TRUE((LetterCase{.to = CaseKind::upper, .sides = sides}.make(materials())->apply(example, nullptr)));
    EXPECT_EQ(example.source_text, source);
    EXPECT_EQ(example.target_text, target);
  }
}

TEST(LetterCase, KeepsLossWithItsText) {
  Example example = pair_of("", "ßab");
  example.loss = {false, false, true, true};
  EXPECT_TRUE(LetterCase{.to = CaseKind::upper}.make(materials())->apply(example, nullptr));
  EXPECT_EQ(example.target_text, "SSAB");
  EXPECT_THAT(example.loss, testing::ElementsAre(false, false, true, true));
  example = pair_of("", "ﬁx");  // three bytes of two
  example.loss = {true, true, true, false};
  EXPECT_TRUE(LetterCase{.to = CaseKind::upper}.make(materials())->apply(example, nullptr));
  EXPECT_EQ(example.target_text, "FIX");
  EXPECT_THAT(example.loss, testing::ElementsAre(true, true, false));
}

TEST(LetterCase, ChangesAShareOfTheExamplesBothSidesAlike) {
  const LetterCase config{.to = CaseKind::upper, .probability = .3, .growth = 1};
  EXPECT_FALSE(LetterCase{}.make(materials())->is_random());
  std::int64_t changed = 0;
  for (const Example& example : drawn(config, pair_of("ab", "cd"), 10000)) {
    changed += example.source_text == "AB" ? 1 : 0;
    EXPECT_EQ(example.source_text == "AB", example.target_text == "CD");
  }
  EXPECT_NEAR(static_cast<double>(changed), 3000, 4 * std::sqrt(10000 * .3 * .7));
  EXPECT_EQ(config.make(materials())->longest({5, 6}, {}), (Lengths{10, 12}));
  EXPECT_EQ(LetterCase{.growth = 1}.make(materials())->longest({5, 6}, {}), (Lengths{5, 6}));
  Example example = pair_of("ab", "cd");
  EXPECT_TRUE(config.make(materials())->apply(example, nullptr));
  EXPECT_EQ(example.source_text, "ab");
}

/// What noise of one kind makes of a text, and the mean number of its characters.
std::pair<std::set<std::string>, double> noisy(const CharacterNoise& config, const std::string& text) {
  std::set<std::string> all;
  double characters = 0;
  for (const Example& example : drawn(config, pair_of(text, "target"), 4000)) {
    EXPECT_EQ(example.target_text, "target");
    EXPECT_EQ(tokenizer::valid_utf8(example.source_text), example.source_text);
    for (std::size_t at = 0; at < example.source_text.size(); ++characters)
      static_cast<void>(tokenizer::next_character(example.source_text, at));
    all.insert(example.source_text);
  }
  return {all, characters / 4000};
}

TEST(CharacterNoise, MisspellsCharactersNotBytes) {
  using Texts = std::set<std::string>;
  const auto [dropped, shorter] = noisy({.drop = .2}, "äbc");
  EXPECT_EQ(dropped, (Texts{"äbc", "bc", "äc", "äb", "ä", "b", "c"})) << "nothing at all is no text";
  EXPECT_NEAR(shorter, 3 * .8 + 3 * std::pow(.2, 3), .05);
  const auto [swapped, as_long] = noisy({.swap = .5}, "äbc");
  EXPECT_EQ(swapped, (Texts{"äbc", "bäc", "äcb"})) << "the last one has no next one";
  EXPECT_EQ(as_long, 3);
  const auto [repeated, longer] = noisy({.repeat = .5}, "äb");
  EXPECT_EQ(repeated, (Texts{"äb", "ääb", "äbb", "ääbb"}));
  EXPECT_NEAR(longer, 3, .06);
  const auto [inserted, with_more] = noisy({.insert = .5}, "äb");
  EXPECT_EQ(inserted, (Texts{"äb", "ääb", "äbb", "ääbb", "äbä", "ääbä", "äbbä", "äbbb"}));
  EXPECT_NEAR(with_more, 3, .06);
}

TEST(CharacterNoise, ChangesTheSidesItIsToldAndPlansForGrowth) {
  const CharacterNoise both{.repeat = 1, .sides = Sides::both, .growth = .5};
  for (const Example& example : drawn(both, pair_of("ab", "c"), 3)) {
    EXPECT_EQ(example.source_text, "aabb");
    EXPECT_EQ(example.target_text, "cc");
  }
  EXPECT_EQ(both.make(materials())->longest({4, 5}, {}), (Lengths{6, 8}));
  EXPECT_EQ((CharacterNoise{.repeat = 1, .growth = .25}.make(materials())->longest({4, 5}, {})), (Lengths{5, 5}));
  Example example = pair_of("ab", "c");
  EXPECT_TRUE(both.make(materials())->apply(example, nullptr));
  EXPECT_EQ(example.source_text, "ab");
}

Example third_line() {
  Example example = pair_of("c", "z");
  example.before = {{"a", "x"}, {"b", "y"}};
  return example;
}

TEST(Concatenate, JoinsLinesOfItsDocument) {
  std::map<std::string, std::int64_t> counts;
  for (const Example& example : drawn(Concatenate{.probability = .8, .lines = 3}, third_line(), 10000)) {
    ++counts[example.source_text];
    EXPECT_EQ(example.source_text.size(), example.target_text.size()) << "both sides have the same lines";
    EXPECT_EQ(example.source_text.size() / 2 + example.before.size(), 2U) << "a line is not its context as well";
  }
  EXPECT_THAT(counts, SizeIs(3));
  EXPECT_NEAR(static_cast<double>(counts["c"]), 2000, 160);
  EXPECT_NEAR(static_cast<double>(counts["b c"]), 4000, 200);
  EXPECT_NEAR(static_cast<double>(counts["a b c"]), 4000, 200);
  EXPECT_EQ((Concatenate{.lines = 3}.make(materials())->lines_before()), 3);
  EXPECT_EQ((Concatenate{.growth = .5}.make(materials())->longest({4, 5}, {})), (Lengths{6, 8}));
  Example first = pair_of("c", "z");
  EXPECT_TRUE((Concatenate{.probability = 1}.make(materials())->apply(first, nullptr)));
  EXPECT_EQ(first.source_text, "c") << "the first line of a document";
}

TEST(Concatenate, DrawsNothingIfThereIsNothingToDraw) {
  const auto always = Concatenate{.probability = 1}.make(materials());
  EXPECT_FALSE(always->is_random());
  EXPECT_EQ(always->longest({4, 5}, {}), (Lengths{4, 5}));
  Example example = third_line();
  EXPECT_TRUE(always->apply(example, nullptr));
  EXPECT_EQ(example.source_text, "b c");
  EXPECT_EQ(example.target_text, "y z");
  example = third_line();
  EXPECT_TRUE((Concatenate{}.make(materials())->apply(example, nullptr)));
  EXPECT_EQ(example.source_text, "c") << "plainly: not joined";
}

TEST(TextNoise, ChecksItsKeysAndTellsThemApart) {
  EXPECT_EQ(problems_of(LetterCase{}) + problems_of(CharacterNoise{.drop = .1}) + problems_of(Concatenate{}), "");
  EXPECT_EQ(problems_of(LetterCase{.probability = 2}), "/probability a number from 0 to 1\n");
  EXPECT_EQ(problems_of(LetterCase{.growth = -1}), "/growth a number from 0 to 10\n");
  EXPECT_THAT(problems_of(CharacterNoise{}), HasSubstr("/drop above 0 and at most 1 together"));
  EXPECT_THAT(problems_of(CharacterNoise{.drop = .6, .repeat = .6}), HasSubstr("/drop above 0 and at most 1 together"));
  for (const auto& [key, config] : {std::pair{"/drop", CharacterNoise{.drop = 2}},
                                    {"/swap", CharacterNoise{.swap = 2}},
                                    {"/insert", CharacterNoise{.insert = 2}},
                                    {"/repeat", CharacterNoise{.repeat = 2}}})
    EXPECT_THAT(problems_of(config), HasSubstr(std::string{key} + " a number from 0 to 1\n"));
  EXPECT_EQ(problems_of(CharacterNoise{.drop = .1, .growth = 11}), "/growth a number from 0 to 10\n");
  EXPECT_EQ(problems_of(Concatenate{.probability = -1}), "/probability a number from 0 to 1\n");
  EXPECT_EQ(problems_of(Concatenate{.lines = 0}), "/lines 1 to 100\n");
  EXPECT_EQ(problems_of(Concatenate{.growth = -1}), "/growth a number from 0 to 10\n");
  std::set<std::string> recipes;
  for (const LetterCase& config : {LetterCase{}, LetterCase{.to = CaseKind::upper}, LetterCase{.sides = Sides::source},
                                   LetterCase{.probability = .5}, LetterCase{.growth = 1}})
    recipes.insert(recipe_of(config));
  for (const CharacterNoise& config :
       {CharacterNoise{.drop = .1}, CharacterNoise{.swap = .1}, CharacterNoise{.insert = .1},
        CharacterNoise{.repeat = .1}, CharacterNoise{.drop = .1, .sides = Sides::both},
        CharacterNoise{.drop = .1, .growth = 1}})
    recipes.insert(recipe_of(config));
  for (const Concatenate& config :
       {Concatenate{}, Concatenate{.probability = 1}, Concatenate{.lines = 2}, Concatenate{.growth = 2}})
    recipes.insert(recipe_of(config));
  EXPECT_THAT(recipes, SizeIs(15));
}

/// All that draw, each with what it needs to change the example below.
std::vector<TransformConfig> random_transforms() {
  return {{Subword{.alpha = .3}},
          {Subword{.alpha = .3, .nbest = 8, .growth = .5}},
          {LetterCase{.to = CaseKind::upper, .probability = .5, .growth = 9}},
          {CharacterNoise{.drop = .03, .swap = .03, .growth = .5}},
          {Concatenate{.probability = .5, .lines = 2, .growth = 4}},
          {Prefix{.source = {"<news>"}, .probability = .5}},
          {Switchout{}},
          {TokenDrop{}},
          {TokenMask{}},
          {Denoise{.mask = .3, .span = MaskedSpan::word}},
          {Denoise{.objective = DenoiseObjective::mass, .mask = .5}}};
}

TEST(RandomTransforms, DrawAnewInEachEpochAndTheSameForTheSameDraw) {
  for (const TransformConfig& transform : random_transforms()) {
    CorpusConfig corpus{.name = "c", .source = "s", .target = "t"};
    corpus.transforms = {transform};
    const auto type = std::visit([](const auto& chosen) { return chosen.type; }, transform.value);
    EXPECT_EQ(problems_of(corpus), "") << type;
    const Pipeline pipeline{corpus, tokenizer_with_symbols()};
    Example stored =
        pair_of("In the beginning God created the heaven and the earth.", "En el principio creó Dios los cielos.");
    stored.before = {{"And God said", "Y dijo Dios"}, {"Let there be light", "Sea la luz"}};
    const Pipeline::Plan plan = pipeline.plan(stored);
    EXPECT_FALSE(plan.left_out) << type;
    Example plain = stored;
    EXPECT_FALSE(pipeline.finish(plain, std::nullopt, plan.longest)) << type << ": plainly it fits its plan";
    std::set<std::vector<std::int32_t>> epochs, examples;
    int cut = 0;
    for (std::uint64_t i = 0; i < 40; ++i) {
      Example once = stored, again = stored, other = stored;
      cut += pipeline.finish(once, Draw{.seed = 1, .epoch = i, .example = 3}, plan.longest) ? 1 : 0;
      pipeline.finish(again, Draw{.seed = 1, .epoch = i, .example = 3}, plan.longest);
      pipeline.finish(other, Draw{.seed = 1, .epoch = 0, .example = i}, plan.longest);
      EXPECT_EQ(once.source, again.source) << type;
      EXPECT_EQ(once.target, again.target) << type;
      EXPECT_EQ(once.loss, again.loss) << type;
      EXPECT_LE(once.source.size(), plan.longest.source) << type;
      EXPECT_LE(once.target.size(), plan.longest.target) << type;
      EXPECT_TRUE(once.loss.empty() || once.loss.size() == once.target.size()) << type;
      epochs.insert(once.source);
      examples.insert(other.source);
    }
    EXPECT_GE(epochs.size(), 2U) << type;
    EXPECT_GE(examples.size(), 2U) << type;
    EXPECT_LE(cut, 8) << type;
  }
}

TEST(RandomTransforms, TakeLinesOfAMegabyte) {
  std::string text;
  while (text.size() < 1000000) text += "In the beginning. ";
  for (const TransformConfig& transform : random_transforms()) {
    const auto made = std::visit([](const auto& chosen) { return chosen.make(with_symbols()); }, transform.value);
    const auto* subword = std::get_if<Subword>(&transform.value);
    if (subword != nullptr && subword->nbest > 0) continue;  // its memory grows with nbest, too
    Example example = pair_of(text, text);
    example.source = example.target = std::vector<std::int32_t>(300000, 100);
    example.before = {{text, text}, {text, text}};
    RandomStream random(1, 2);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(made->apply(example, &random));
    constexpr double slow_machine_s = 20;  // sanitizers included
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), slow_machine_s)
        << made->type();
  }
}

TEST(Transforms, ThatNeedPairsAreRefusedWithoutATarget) {
  for (const TransformConfig& transform : std::vector<TransformConfig>{{Denoise{.mask = .3}},
                                                                       {Context{.source_previous = 1}},
                                                                       {Concatenate{}},
                                                                       {Numerals{}},
                                                                       {TerminalPunctuation{}},
                                                                       {DuplicateTarget{}}}) {
    CorpusConfig corpus{.name = "lm", .source = "text"};
    corpus.transforms = {transform};
    EXPECT_THAT(problems_of(corpus), HasSubstr("/transforms/0 a transform for one side"));
  }
}

TEST(TextNoise, PlansForHardlyAnyDrawThatIsLonger) {
  const auto check = [](const std::vector<TransformConfig>& transforms) {
    const CorpusConfig corpus{.name = "verses", .source = "en", .target = "es", .transforms = transforms};
    const Pipeline pipeline{corpus, tokenizer_with_symbols()};
    const test::Verses text = test::verses(1000);
    double planned = 0, made = 0;
    int plainly = 0, differ = 0;
    for (std::size_t i = 1; i < text.english.size(); ++i) {
      Example example = pair_of(text.english[i], text.spanish[i]);
      if (pipeline.lines_before() > 0) example.before = {{text.english[i - 1], text.spanish[i - 1]}};
      const Pipeline::Plan plan = pipeline.plan(example);
      plainly += pipeline.finish(example, Draw{.seed = 1, .epoch = 0, .example = i}, plan.longest) ? 1 : 0;
      differ += example.target != tokenizer_with_symbols().encode(text.spanish[i]) ? 1 : 0;
      planned += plan.longest.target;
      made += static_cast<double>(example.target.size());
    }
    EXPECT_LE(plainly, .01 * static_cast<double>(text.english.size()));
    EXPECT_GT(differ, .4 * static_cast<double>(text.english.size()));
    EXPECT_LT(planned, 2.2 * made);
  };
  check({{LetterCase{.to = CaseKind::upper, .probability = .5}}});
  check({{CharacterNoise{.drop = .02, .swap = .02, .insert = .02, .repeat = .02, .sides = Sides::both}}});
  check({{Concatenate{.probability = .5}}});
  check({{LetterCase{.to = CaseKind::upper, .probability = .5}}, {Subword{.alpha = .3}}});
}

}  // namespace
}  // namespace argosy::data
