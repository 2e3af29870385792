#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/data_config.hpp"
#include "data/pipeline.hpp"
#include "data/transforms/draws.hpp"
#include "support/chi_squared.hpp"
#include "support/refusal.hpp"
#include "transforms_support.hpp"

namespace argosy::data {
namespace {

using testing::ElementsAre, testing::Each, testing::HasSubstr, testing::IsEmpty, testing::SizeIs;
using Ids = std::vector<std::int32_t>;

/// 5 and 4 ids that occur once each.
Example nine_ids() { return ids_of({20, 21, 22, 23, 24}, {30, 31, 32, 33}); }

std::int64_t changed_places(const Ids& before, const Ids& after) {
  std::int64_t changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) changed += before[i] != after.at(i) ? 1 : 0;
  return changed;
}

/// P(n) of 0 to `most`.
std::map<std::int64_t, double> counts_wanted(std::int64_t most, double temperature) {
  std::map<std::int64_t, double> wanted;
  for (std::int64_t n = 0; n <= most; ++n) wanted[n] = std::exp(-static_cast<double>(n) * temperature);
  return wanted;
}

TEST(DrawCount, HasTheProbabilitiesOfItsDefinition) {
  for (const auto& [most, temperature] : {std::pair{5, 1.0}, {3, .2}, {40, .05}, {1, 3.0}}) {
    std::map<std::int64_t, std::int64_t> counts;
    RandomStream random(1, 2);
    for (int i = 0; i < 20000; ++i) ++counts[draw_count(random, most, temperature)];
    EXPECT_GT(test::chi_squared_p(counts, counts_wanted(most, temperature)), improbable) << most << " " << temperature;
  }
}

TEST(DrawPlaces, DrawsEachSetEquallyOften) {
  std::map<std::vector<std::size_t>, std::int64_t> counts;
  std::map<std::vector<std::size_t>, double> wanted;
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t j = i + 1; j < 6; ++j) wanted[{i, j}] = 1;
  RandomStream random(1, 2);
  for (int i = 0; i < 20000; ++i) ++counts[draw_places(random, 6, 2)];
  EXPECT_GT(test::chi_squared_p(counts, wanted), improbable);
  EXPECT_THAT(draw_places(random, 3, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(draw_places(random, 3, 0), IsEmpty());
}

TEST(Switchout, PutsLivePiecesInPlacesOfBothSides) {
  const Tokenizer& tokenizer = tokenizer_with_symbols();
  std::map<std::int64_t, std::int64_t> counts;
  std::set<std::int32_t> pieces;
  std::int64_t targets = 0;
  for (const Example& example : drawn(Switchout{.temperature = .7}, nine_ids(), 20000)) {
    EXPECT_THAT(example.source, SizeIs(5));
    EXPECT_THAT(example.target, SizeIs(4));
    ++counts[changed_places(nine_ids().source, example.source)];
    targets += changed_places(nine_ids().target, example.target) > 0 ? 1 : 0;
    pieces.insert(example.source.begin(), example.source.end());
  }
  // One place in 300 keeps its piece by chance, which moves no count by more than the draws do.
  EXPECT_GT(test::chi_squared_p(counts, counts_wanted(5, .7)), 1e-6);
  EXPECT_GT(targets, 5000);
  for (const std::int32_t id : pieces) EXPECT_TRUE(tokenizer.is_ordinary(id)) << tokenizer.piece(id);
  EXPECT_GT(pieces.size(), 280U) << "all 298 pieces of text";
  for (const Example& example : drawn(Switchout{.sides = Sides::source}, nine_ids(), 100))
    EXPECT_EQ(example.target, nine_ids().target);
}

TEST(OrdinaryIds, AreThePiecesOfText) {
  const Tokenizer& tokenizer = tokenizer_with_symbols();
  const Ids ids = ordinary_ids(tokenizer);
  EXPECT_EQ(std::ssize(ids), tokenizer.vocabulary().pieces - 2) << "without </s> and <unk>";
  EXPECT_EQ(std::ranges::count(ids, 0) + std::ranges::count(ids, 1), 0);
}

TEST(TokenDrop, RemovesPlacesOfTheSourceButNotAll) {
  std::map<std::int64_t, std::int64_t> counts;
  std::set<std::int32_t> left;
  for (const Example& example : drawn(TokenDrop{.temperature = .2}, nine_ids(), 20000)) {
    ++counts[5 - std::ssize(example.source)];
    EXPECT_TRUE(std::ranges::is_sorted(example.source));
    EXPECT_EQ(example.target, nine_ids().target);
    if (example.source.size() == 1) left.insert(example.source[0]);
  }
  EXPECT_GT(test::chi_squared_p(counts, counts_wanted(4, .2)), improbable);
  EXPECT_THAT(left, SizeIs(5)) << "any of them may stay";
  Example with_loss = nine_ids();
  with_loss.loss = {true, false, true, true};
  for (const Example& example : drawn(TokenDrop{.temperature = .1, .sides = Sides::target}, with_loss, 100)) {
    EXPECT_EQ(example.source, nine_ids().source);
    ASSERT_EQ(example.loss.size(), example.target.size());
    for (std::size_t i = 0; i < example.target.size(); ++i) EXPECT_EQ(example.loss[i], example.target[i] != 31);
  }
}

TEST(TokenMask, MasksPlacesOfTheSource) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const Example& example : drawn(TokenMask{}, nine_ids(), 20000)) {
    ++counts[std::ranges::count(example.source, id_of("<mask>"))];
    EXPECT_EQ(changed_places(nine_ids().source, example.source), std::ranges::count(example.source, id_of("<mask>")));
    EXPECT_EQ(example.target, nine_ids().target);
  }
  EXPECT_GT(test::chi_squared_p(counts, counts_wanted(5, 1)), improbable);
  std::int64_t others = 0;
  for (const Example& example : drawn(TokenMask{.mask_piece = "<news>"}, nine_ids(), 100))
    others += std::ranges::count(example.source, id_of("<news>"));
  EXPECT_GT(others, 20);
}

TEST(IdNoise, ChangesNothingWithoutDraws) {
  for (const auto& transform :
       {Switchout{}.make(with_symbols()), TokenDrop{}.make(with_symbols()), TokenMask{}.make(with_symbols())}) {
    Example example = nine_ids();
    EXPECT_TRUE(transform->apply(example, nullptr));
    EXPECT_EQ(example.source, nine_ids().source) << transform->type();
    EXPECT_EQ(example.target, nine_ids().target) << transform->type();
    Example empty;
    RandomStream random(1, 2);
    EXPECT_TRUE(transform->apply(empty, &random));
    EXPECT_THAT(empty.source, IsEmpty());
  }
}

TEST(IdNoise, ChecksItsKeysAndTellsThemApart) {
  EXPECT_EQ(problems_of(Switchout{}) + problems_of(TokenDrop{}) + problems_of(TokenMask{}), "");
  for (const std::string& problem : {problems_of(Switchout{.temperature = 0}), problems_of(TokenDrop{.temperature = 0}),
                                     problems_of(TokenMask{.temperature = 0})})
    EXPECT_EQ(problem, "/temperature a number from 0.001 to 1000\n");
  EXPECT_THAT(problems_of(TokenMask{.mask_piece = "a b"}), HasSubstr("/mask_piece a piece of 1 to 100 bytes"));
  std::set<std::string> recipes{recipe_of(Switchout{}),
                                recipe_of(Switchout{.temperature = 2}),
                                recipe_of(Switchout{.sides = Sides::source}),
                                recipe_of(TokenDrop{}),
                                recipe_of(TokenDrop{.temperature = 2}),
                                recipe_of(TokenDrop{.sides = Sides::both}),
                                recipe_of(TokenMask{}),
                                recipe_of(TokenMask{.temperature = 2}),
                                recipe_of(TokenMask{.sides = Sides::both}),
                                recipe_of(TokenMask{.mask_piece = "<sep>"})};
  EXPECT_THAT(recipes, SizeIs(10));
}

TEST(Prefix, PutsPiecesBeforeBothSides) {
  const Prefix config{.source = {"<news>", "<to_{to}>"}, .target = {"<to_{from}>"}};
  const auto transform = config.make(with_symbols());
  EXPECT_FALSE(transform->is_random());
  Example example = nine_ids();
  example.loss = {false, true, true, true};
  EXPECT_TRUE(transform->apply(example, nullptr));
  EXPECT_THAT(example.source, ElementsAre(id_of("<news>"), id_of("<to_es>"), 20, 21, 22, 23, 24));
  EXPECT_THAT(example.target, ElementsAre(id_of("<to_en>"), 30, 31, 32, 33));
  EXPECT_THAT(example.loss, ElementsAre(true, false, true, true, true));
  EXPECT_THAT(config.pieces(with_symbols().languages), ElementsAre("<news>", "<to_es>", "<to_en>"));
}

TEST(Prefix, IsLeftOutOfAShareOfTheExamples) {
  const Prefix config{.source = {"<news>"}, .probability = .3};
  std::int64_t with = 0;
  for (const Example& example : drawn(config, nine_ids(), 10000)) with += example.source.size() == 6 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(with), 3000, 4 * std::sqrt(10000 * .3 * .7));
  Example example = nine_ids();
  EXPECT_TRUE(config.make(with_symbols())->apply(example, nullptr));
  EXPECT_THAT(example.source, SizeIs(6)) << "validation has it always";
}

TEST(Prefix, NamesAPieceThatTheTokenizerLacks) {
  const auto refused = [](const auto& config) {
    return test::refusal(Fault::config, [&] { (void)config.make(with_symbols()); });
  };
  EXPECT_THAT(refused(Prefix{.source = {"<{to}>"}}),
              HasSubstr("the tokenizer has no piece <es>, which the transform prefix needs; train the tokenizer with "
                        "data.tokenizer_training, which adds such pieces, or use one that has it"));
  EXPECT_THAT(refused(TokenMask{.mask_piece = "<hole>"}),
              HasSubstr("piece <hole>, which the transform token_mask needs"));
  EXPECT_THAT(refused(Denoise{.mask = .3, .mask_piece = "<hole>"}),
              HasSubstr("<hole>, which the transform denoise needs"));
  EXPECT_THAT(refused(Context{.source_previous = 1, .separator = "<s2>"}),
              HasSubstr("<s2>, which the transform context needs"));
}

TEST(Prefix, ChecksItsKeysAndTellsThemApart) {
  EXPECT_EQ(problems_of(Prefix{.source = {"<a>"}}), "");
  EXPECT_EQ(problems_of(Prefix{}), "/source pieces for source or target\n");
  EXPECT_THAT(problems_of(Prefix{.source = {"<a>", ""}}), HasSubstr("/source/1 a piece of 1 to 100 bytes without"));
  EXPECT_THAT(problems_of(Prefix{.target = {"a,b"}}), HasSubstr("/target/0 a piece"));
  EXPECT_EQ(problems_of(Prefix{.source = {"<a>"}, .probability = 2}), "/probability a number from 0 to 1\n");
  const Prefix base{.source = {"<news>"}};
  for (const Prefix& other :
       {Prefix{.target = {"<news>"}}, Prefix{.source = {"<sep>"}}, Prefix{.source = {"<news>"}, .probability = .5}})
    EXPECT_NE(recipe_of(other), recipe_of(base));
}

CorpusConfig pairs_with_prefix() {
  return {.name = "c", .languages = {"en", "es"}, .source = "s", .target = "t", .source_prefix = {"<to_{to}>"}};
}

TEST(SourcePrefix, IsATransformAfterTheListedOnes) {
  CorpusConfig corpus = pairs_with_prefix();
  corpus.transforms = {{Prefix{.source = {"<news>"}}}};
  const Pipeline pipeline{corpus, tokenizer_with_symbols()};
  Example example = pair_of("God", "Dios");
  const Pipeline::Plan plan = pipeline.plan(example);
  Ids wanted{id_of("<to_es>"), id_of("<news>")};
  for (const std::int32_t id : tokenizer_with_symbols().encode("God")) wanted.push_back(id);
  EXPECT_EQ(example.source, wanted);
  EXPECT_EQ(plan.longest.source, wanted.size());
  corpus.prefix_probability = .5;
  EXPECT_TRUE((Pipeline{corpus, tokenizer_with_symbols()}.is_random()));
}

TEST(SourcePrefix, DoesNotHideThatALineIsEmpty) {
  const Pipeline pipeline{pairs_with_prefix(), tokenizer_with_symbols()};
  Example example = pair_of("", "Dios");
  EXPECT_EQ(pipeline.plan(example).left_out, "empty");
}

TEST(SourcePrefix, NeedsLanguagesAndASource) {
  EXPECT_EQ(problems_of(pairs_with_prefix()), "");
  CorpusConfig corpus = pairs_with_prefix();
  corpus.languages = {};
  EXPECT_EQ(problems_of(corpus), "/languages the codes that {from} and {to} of a prefix stand for\n");
  corpus = pairs_with_prefix();
  corpus.target = {};
  corpus.languages = {"en"};
  EXPECT_THAT(problems_of(corpus), HasSubstr("/source_prefix a prefix of the target"));
  corpus.source_prefix = {};
  corpus.transforms = {{Prefix{.target = {"<to_{to}>"}}}};
  EXPECT_EQ(problems_of(corpus), "");
  corpus = pairs_with_prefix();
  corpus.source_prefix = {"a b"};
  corpus.prefix_probability = -1;
  EXPECT_THAT(problems_of(corpus),
              testing::AllOf(HasSubstr("/source_prefix/0 a piece"), HasSubstr("/prefix_probability")));
}

TEST(Pipeline, PlansWhatIsAddedAfterChance) {
  CorpusConfig corpus = pairs_with_prefix();
  corpus.transforms = {{Subword{.alpha = .5, .growth = .5}}, {Context{.source_previous = 1}}};
  const Pipeline pipeline{corpus, tokenizer_with_symbols()};
  const std::size_t own = tokenizer_with_symbols().encode("God created the heaven").size(),
                    before = tokenizer_with_symbols().encode("In the beginning").size();
  Example example = pair_of("God created the heaven", "x");
  example.before = {{"In the beginning", "y"}};
  EXPECT_EQ(pipeline.plan(example).longest.source,
            std::ceil(static_cast<double>(own) * 1.5) + static_cast<double>(before + 2));
}

TEST(Symbols, AreWhatTransformsAndUsersNeed) {
  DataConfig data;
  data.corpora = {pairs_with_prefix(), pairs_with_prefix()};
  data.corpora[1].languages = {"es", "en"};
  data.corpora[0].transforms = {{TokenMask{}}, {Context{.source_previous = 1}}};
  data.corpora[1].transforms = {{Denoise{.mask_piece = "<unk>"}}};
  EXPECT_THAT(symbols_of(data), ElementsAre("<mask>", "<sep>", "<to_en>", "<to_es>"));
  data.tokenizer_training = TokenizerTraining{.symbols = {"<news>"}};
  EXPECT_THAT(symbols_of(data), ElementsAre("<mask>", "<news>", "<sep>", "<to_en>", "<to_es>"));
  EXPECT_THAT(problems_of(TokenizerTraining{.symbols = {"<s>"}}), HasSubstr("/symbols/0 a piece that is not special"));
  EXPECT_THAT(problems_of(TokenizerTraining{.symbols = {""}}), HasSubstr("/symbols/0 a piece of 1 to 100 bytes"));
}

TEST(Symbols, AreOnePieceEachAndPartOfTheTrainingsDigest) {
  const Tokenizer& tokenizer = tokenizer_with_symbols();
  for (const char* symbol : {"<mask>", "<news>", "<sep>", "<to_en>", "<to_es>"}) {
    const Ids ids = tokenizer.encode(std::string{"God "} + symbol + "heaven");
    EXPECT_EQ(std::ranges::count(ids, id_of(symbol)), 1) << symbol;
  }
  EXPECT_EQ(tokenizer.vocabulary().pieces, 300);
  const std::vector<CountedCorpus> corpora(1);
  const auto digest = [&](std::span<const std::string> symbols) {
    return digest_of_training({}, symbols, training_texts(corpora), spec::TokenLayout::marian).hex();
  };
  const std::vector<std::string> one{"<a>"}, other{"<b>"};
  EXPECT_NE(digest(one), digest(other));
  EXPECT_NE(digest(one), digest({}));
}

Example with_before(std::size_t lines) {
  Example example = ids_of({20, 21}, {30});
  for (const auto& [source, target] :
       {std::pair{"In the beginning", "En el principio"}, {"And God said", "Y dijo Dios"}, {"Let there be", "Sea la"}})
    example.before.push_back({source, target});
  example.before.erase(example.before.begin(), example.before.end() - static_cast<std::ptrdiff_t>(lines));
  return example;
}

Ids with_separators(std::initializer_list<const char*> lines, std::initializer_list<std::int32_t> own) {
  Ids ids;
  for (const char* line : lines) {
    for (const std::int32_t id : tokenizer_with_symbols().encode(line)) ids.push_back(id);
    ids.push_back(id_of("<sep>"));
  }
  ids.insert(ids.end(), own);
  return ids;
}

TEST(Context, PutsWholeLinesBeforeTheSource) {
  const auto two = Context{.source_previous = 2}.make(with_symbols());
  EXPECT_EQ(two->lines_before(), 2);
  EXPECT_FALSE(two->is_random());
  Example example = with_before(3);
  EXPECT_TRUE(two->apply(example, nullptr));
  EXPECT_EQ(example.source, with_separators({"And God said", "Let there be"}, {20, 21}));
  EXPECT_THAT(example.target, ElementsAre(30));
  EXPECT_THAT(example.loss, IsEmpty());
  example = with_before(1);
  EXPECT_TRUE(two->apply(example, nullptr));
  EXPECT_EQ(example.source, with_separators({"Let there be"}, {20, 21})) << "the second line of a document";
  example = with_before(0);
  EXPECT_TRUE(two->apply(example, nullptr));
  EXPECT_THAT(example.source, ElementsAre(20, 21)) << "the first one";
}

TEST(Context, LeavesLinesOutFromTheLeftUntilTheyFit) {
  const Ids three = with_separators({"In the beginning", "And God said", "Let there be"}, {20, 21}),
            two = with_separators({"And God said", "Let there be"}, {20, 21});
  const auto with = [](std::size_t most) {
    Example example = with_before(3);
    const auto transform = Context{.source_previous = 3, .max_pieces = narrow<std::int64_t>(most)}.make(with_symbols());
    EXPECT_TRUE(transform->apply(example, nullptr));
    return example.source;
  };
  EXPECT_EQ(with(three.size()), three);
  EXPECT_EQ(with(three.size() - 1), two);
  EXPECT_EQ(with(two.size()), two);
  EXPECT_EQ(with(1), (Ids{20, 21})) << "the line itself stays";
}

TEST(Context, LinesBeforeTheTargetBearNoLoss) {
  const auto transform = Context{.target_previous = 1}.make(with_symbols());
  Example example = with_before(3);
  EXPECT_TRUE(transform->apply(example, nullptr));
  EXPECT_THAT(example.source, ElementsAre(20, 21));
  EXPECT_EQ(example.target, with_separators({"Sea la"}, {30}));
  ASSERT_EQ(example.loss.size(), example.target.size());
  EXPECT_EQ(std::ranges::count(example.loss, true), 1);
  EXPECT_TRUE(example.loss.back());
}

TEST(Context, ChecksItsKeysAndTellsThemApart) {
  EXPECT_EQ(problems_of(Context{.source_previous = 2}) + problems_of(Context{.target_previous = 2}), "");
  EXPECT_EQ(problems_of(Context{}), "/source_previous lines before the source or the target\n");
  EXPECT_THAT(problems_of(Context{.source_previous = 101}), HasSubstr("/source_previous 0 to 100"));
  EXPECT_THAT(problems_of(Context{.source_previous = 1, .target_previous = -1}),
              HasSubstr("/target_previous 0 to 100"));
  EXPECT_EQ(problems_of(Context{.source_previous = 1, .max_pieces = 0}), "/max_pieces 1 to 2147483647\n");
  EXPECT_THAT(problems_of(Context{.source_previous = 1, .separator = " "}), HasSubstr("/separator a piece"));
  std::set<std::string> recipes;
  for (const Context& config :
       {Context{.source_previous = 1}, Context{.source_previous = 2}, Context{.target_previous = 1},
        Context{.source_previous = 1, .max_pieces = 9}, Context{.source_previous = 1, .separator = "<news>"}})
    recipes.insert(recipe_of(config));
  EXPECT_THAT(recipes, SizeIs(5));
}

}  // namespace
}  // namespace argosy::data
