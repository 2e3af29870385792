#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "data/data_config.hpp"
#include "support/chi_squared.hpp"
#include "transforms_support.hpp"

namespace argosy::data {
namespace {

using testing::Contains, testing::ElementsAre, testing::Gt, testing::HasSubstr, testing::IsEmpty, testing::SizeIs;
using Ids = std::vector<std::int32_t>;

std::int32_t mask() { return id_of("<mask>"); }

/// Ids that occur once each, none of which is the mask.
Ids different_ids(std::size_t count) {
  Ids ids(count);
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

Example of_source(Ids source) { return ids_of(std::move(source), {9, 9}); }

/// Two pieces of text: one that begins a word, and one that does not.
std::int32_t first_id(bool begins_word) {
  const Tokenizer& tokenizer = tokenizer_with_symbols();
  for (std::int64_t id = 20; id < tokenizer.vocabulary().pieces; ++id)
    if (tokenizer.piece(id).starts_with("\u2581") == begins_word &&
        tokenizer.piece(id).find_first_of(".?!<") == std::string::npos)
      return narrow<std::int32_t>(id);
  return -1;
}

/// `words` words of three pieces.
Ids words_of_three(std::size_t words) {
  Ids ids;
  for (std::size_t i = 0; i < words; ++i) ids.insert(ids.end(), {first_id(true), first_id(false), first_id(false)});
  return ids;
}

TEST(Denoise, MasksAShareOfThePieces) {
  std::set<std::size_t> places;
  for (const Example& example : drawn(Denoise{.mask = .3}, of_source(different_ids(10)), 300)) {
    EXPECT_EQ(example.target, different_ids(10)) << "the target is the source as it was";
    EXPECT_THAT(example.loss, IsEmpty());
    ASSERT_THAT(example.source, SizeIs(10));
    EXPECT_EQ(std::ranges::count(example.source, mask()), 3) << "0.3 of 10, not 4";
    for (std::size_t i = 0; i < 10; ++i) {
      if (example.source[i] == mask()) places.insert(i);
      EXPECT_TRUE(example.source[i] == mask() || example.source[i] == different_ids(10)[i]);
    }
  }
  EXPECT_THAT(places, SizeIs(10));
  for (const Example& example : drawn(Denoise{.mask = .31}, of_source(different_ids(10)), 10))
    EXPECT_EQ(std::ranges::count(example.source, mask()), 4) << "rounded up";
}

TEST(Denoise, MasksWholeWords) {
  const Ids words = words_of_three(6);
  for (const auto& [replace, masks, size] : {std::tuple{1, 2, 14}, {0, 0, 12}, {-1, 6, 18}}) {
    const Denoise config{.mask = .3, .span = MaskedSpan::word, .replace_length = replace};
    for (const Example& example : drawn(config, of_source(words), 100)) {
      EXPECT_EQ(std::ranges::count(example.source, mask()), masks) << replace;
      EXPECT_EQ(std::ssize(example.source), size) << replace;
      EXPECT_EQ(std::ranges::count(example.source, first_id(false)), 8) << "4 words are whole";
    }
  }
}

TEST(Denoise, MasksSpansOfWordsWhoseLengthsArePoissonDistributed) {
  constexpr double lambda = 2;
  // Of 1000 words nearly all spans are as drawn; the lengths of runs of masks tell them apart, unless two are adjacent.
  const Denoise config{.mask = .01, .span = MaskedSpan::poisson, .lambda = lambda, .replace_length = -1};
  std::map<std::int64_t, std::int64_t> lengths;
  std::int64_t inserted = 0, examples = 0;
  for (const Example& example : drawn(config, of_source(words_of_three(1000)), 400)) {
    ++examples;
    inserted += std::ssize(example.source) - 3000;
    EXPECT_EQ(std::ranges::count(example.source, mask()), 30 + std::ssize(example.source) - 3000)
        << "10 words of 3 pieces";
    std::int64_t run = 0;
    for (const std::int32_t id : example.source) {
      if (id == mask()) {
        ++run;
      } else if (run > 0) {
        if (run % 3 == 0) ++lengths[std::min<std::int64_t>(run / 3, 5)];
        run = 0;
      }
    }
  }
  std::map<std::int64_t, double> wanted;
  for (int length = 1; length < 30; ++length)
    wanted[std::min(length, 5)] += std::exp(-lambda + length * std::log(lambda) - std::lgamma(length + 1.0));
  double all = 0, expected = 0;
  for (const auto& [length, count] : lengths) all += static_cast<double>(count);
  for (const auto& [length, p] : wanted) expected += p;
  // The last span of each example is cut: a share of the spans is shorter than drawn.
  for (const auto& [length, p] : wanted)
    EXPECT_NEAR(static_cast<double>(lengths[length]) / all, p / expected, .08) << length;
  const double spans_of_none = std::exp(-lambda) / lambda * 10;  // per example, at most twice as many
  EXPECT_NEAR(static_cast<double>(inserted) / static_cast<double>(examples), spans_of_none, .35 * spans_of_none);
}

TEST(Denoise, SpansBecomeOneMaskNoneOrMany) {
  const auto sizes = [](std::int64_t replace) {
    std::set<std::ptrdiff_t> masks;
    const Denoise config{.mask = .5, .span = MaskedSpan::poisson, .lambda = 8, .replace_length = replace};
    for (const Example& example : drawn(config, of_source(words_of_three(8)), 200)) {
      EXPECT_EQ(std::ranges::count(example.source, first_id(true)), 4);
      masks.insert(std::ranges::count(example.source, mask()));
    }
    return masks;
  };
  EXPECT_THAT(sizes(1), testing::AllOf(Contains(1), Contains(2)));
  EXPECT_THAT(sizes(0), Contains(0));
  EXPECT_THAT(sizes(-1), Contains(12));
  const Denoise all{.mask = 1, .replace_length = 0};
  for (const Example& example : drawn(all, of_source(different_ids(5)), 20)) EXPECT_THAT(example.source, SizeIs(1));
}

TEST(Denoise, AShareOfTheMasksIsARandomPiece) {
  std::int64_t masks = 0;
  std::set<std::int32_t> pieces;
  for (const Example& example : drawn(Denoise{.mask = 1, .random = .25}, of_source(different_ids(10)), 1000)) {
    masks += std::ranges::count(example.source, mask());
    pieces.insert(example.source.begin(), example.source.end());
  }
  EXPECT_NEAR(static_cast<double>(masks), 7500, 4 * std::sqrt(10000 * .25 * .75));
  EXPECT_THAT(pieces, SizeIs(Gt(250U)));
  EXPECT_FALSE(pieces.contains(0) || pieces.contains(1)) << "</s> or <unk>";
}

TEST(Denoise, InsertsAShareOfThePieces) {
  std::set<std::size_t> places;
  for (const Example& example : drawn(Denoise{.insert = .2}, of_source(different_ids(9)), 300)) {
    ASSERT_THAT(example.source, SizeIs(11));
    Ids others = example.source;
    for (std::size_t i = 0; i < 11; ++i)
      if (others[i] == mask()) places.insert(i);
    std::erase(others, mask());
    EXPECT_EQ(others, different_ids(9));
  }
  EXPECT_THAT(places, SizeIs(11));
}

TEST(Denoise, ShufflesSentencesWithAProbability) {
  const std::int32_t stop = id_of(".");
  // Two marks in a row end one sentence; the last one has none.
  const Ids text{100, 101, stop, stop, 102, stop, 103};
  const Ids a{100, 101, stop, stop}, b{102, stop}, c{103};
  std::map<Ids, std::int64_t> counts;
  for (const Example& example : drawn(Denoise{.permute = .6}, of_source(text), 6000)) ++counts[example.source];
  std::map<Ids, double> wanted;
  std::vector<const Ids*> order{&a, &b, &c};
  std::ranges::sort(order);
  do {
    Ids ids;
    for (const Ids* sentence : order) ids.insert(ids.end(), sentence->begin(), sentence->end());
    wanted[ids] += .6 / 6;
  } while (std::ranges::next_permutation(order).found);
  wanted[text] += .4;
  EXPECT_THAT(wanted, SizeIs(6));
  EXPECT_GT(test::chi_squared_p(counts, wanted), improbable);
}

TEST(Denoise, RotatesWithAProbability) {
  std::map<Ids, std::int64_t> counts;
  for (const Example& example : drawn(Denoise{.rotate = .5}, of_source(different_ids(4)), 6000))
    ++counts[example.source];
  std::map<Ids, double> wanted{{different_ids(4), .5}};
  for (std::ptrdiff_t first = 1; first < 4; ++first) {
    Ids ids = different_ids(4);
    std::ranges::rotate(ids, ids.begin() + first);
    wanted[ids] = .5 / 3;
  }
  EXPECT_GT(test::chi_squared_p(counts, wanted), improbable);
}

TEST(Denoise, MassMasksOneSpanWhichAloneBearsLoss) {
  std::set<std::size_t> begins;
  const Denoise mass{.objective = DenoiseObjective::mass, .mask = .5, .random = .2};
  std::int64_t masks = 0;
  for (const Example& example : drawn(mass, of_source(different_ids(7)), 500)) {
    EXPECT_EQ(example.target, different_ids(7));
    ASSERT_THAT(example.loss, SizeIs(7));
    const auto begin = static_cast<std::size_t>(std::ranges::find(example.loss, true) - example.loss.begin());
    begins.insert(begin);
    masks += std::ranges::count(example.source, mask());
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(example.loss[i], i >= begin && i < begin + 4) << "ceil(3.5) pieces next to each other";
      EXPECT_TRUE(example.loss[i] || example.source[i] == different_ids(7)[i]);
    }
  }
  EXPECT_THAT(begins, ElementsAre(0, 1, 2, 3));
  EXPECT_NEAR(static_cast<double>(masks), 1600, 4 * std::sqrt(2000 * .2 * .8));
}

TEST(Denoise, AddsNoNoiseWithoutDraws) {
  for (const DenoiseObjective objective : {DenoiseObjective::bart, DenoiseObjective::mass}) {
    Example example = of_source(different_ids(5));
    EXPECT_TRUE((Denoise{.objective = objective, .mask = .5}.make(with_symbols())->apply(example, nullptr)));
    EXPECT_EQ(example.source, different_ids(5));
    EXPECT_EQ(example.target, different_ids(5));
    EXPECT_THAT(example.loss, IsEmpty());
  }
}

TEST(Denoise, ChecksItsKeysAndTellsThemApart) {
  EXPECT_EQ(problems_of(Denoise{.mask = .3}) + problems_of(Denoise{.permute = 1}), "");
  EXPECT_EQ(problems_of(Denoise{}), "/mask above 0, or there is no noise\n");
  const Denoise mass{.objective = DenoiseObjective::mass};
  EXPECT_EQ(problems_of(mass), "/mask above 0, or there is no noise\n");
  EXPECT_THAT(problems_of(Denoise{.objective = DenoiseObjective::mass, .rotate = 1, .mask = .5}),
              HasSubstr("/objective bart where permute, rotate or insert are above 0"));
  EXPECT_EQ(problems_of(Denoise{.mask = .3, .lambda = 0}), "/lambda a number from 0.1 to 100\n");
  EXPECT_EQ(problems_of(Denoise{.mask = .3, .replace_length = 2}), "/replace_length -1 to 1\n");
  EXPECT_THAT(problems_of(Denoise{.mask = .3, .mask_piece = ""}), HasSubstr("/mask_piece a piece"));
  for (const auto& [key, config] : {std::pair{"/permute", Denoise{.permute = 2}},
                                    {"/rotate", Denoise{.rotate = 2}},
                                    {"/insert", Denoise{.insert = 2}},
                                    {"/mask", Denoise{.mask = 2}},
                                    {"/random", Denoise{.mask = .1, .random = 2}}})
    EXPECT_EQ(problems_of(config), std::string{key} + " a number from 0 to 1\n");
  std::set<std::string> recipes;
  for (const Denoise& config :
       {Denoise{.mask = .3}, Denoise{.objective = DenoiseObjective::mass, .mask = .3},
        Denoise{.permute = .1, .mask = .3}, Denoise{.rotate = .1, .mask = .3}, Denoise{.insert = .1, .mask = .3},
        Denoise{.mask = .3, .random = .1}, Denoise{.mask = .3, .span = MaskedSpan::word},
        Denoise{.mask = .3, .lambda = 4}, Denoise{.mask = .3, .replace_length = 0},
        Denoise{.mask = .3, .mask_piece = "<sep>"}, Denoise{.mask = .4}})
    recipes.insert(recipe_of(config));
  EXPECT_THAT(recipes, SizeIs(11));
}

}  // namespace
}  // namespace argosy::data
