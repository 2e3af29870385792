#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "data/data_config.hpp"
#include "data/subword_sampler.hpp"
#include "data/tokenizer_training.hpp"
#include "support/chi_squared.hpp"
#include "support/dropout.hpp"
#include "support/refusal.hpp"
#include "support/tokenizer_files.hpp"
#include "tokenizer/piece_sampler.hpp"
#include "transforms_support.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

/// The small unigram tokenizer with ▁God as a piece that a user defined; with bytes: it spells unknown characters so.
Tokenizer with_user_pieces(bool bytes) {
  tokenizer::Pieces pieces{test::small_tokenizer(spec::TokenLayout::marian).model_bytes()};
  const auto god = std::ranges::find(pieces.texts, "\u2581God") - pieces.texts.begin();
  pieces.types.at(static_cast<std::size_t>(god)) = tokenizer::PieceType::user;
  for (int byte = 0; bytes && byte < 256; ++byte) {
    pieces.texts.push_back(fmt::format("<0x{:02X}>", byte));
    pieces.scores.push_back(0);
    pieces.types.push_back(tokenizer::PieceType::byte);
  }
  std::string model = tokenizer::with_pieces(test::small_tokenizer(spec::TokenLayout::marian).model_bytes(), pieces);
  if (bytes) model += std::string{"\x12\x03\x98\x02\x01"};  // TrainerSpec.byte_fallback
  return Tokenizer::load(std::move(model), {});
}

const Tokenizer& small_bpe() {
  static const Tokenizer tokenizer =
      Tokenizer::load(train_tokenizer({.type = TokenizerType::bpe, .vocab_size = 300}, test::verses(600).of_both(),
                                      spec::TokenLayout::marian),
                      {});
  return tokenizer;
}

std::vector<std::string> uneasy_texts() {
  std::vector<std::string> texts = test::verses(100).of_both();
  for (const char* text :
       {"", " ", "  And   God  said ", "日本 und 中国", "ﬁve №1 ½", "GodGod God\u2581God", "e\u0301t\u00e9"})
    texts.emplace_back(text);
  return texts;
}

TEST(SubwordSampler, EncodesAsTheLibraryWithoutNoise) {
  const Tokenizer fallback = with_user_pieces(true), plain = with_user_pieces(false);
  ASSERT_GT(fallback.encode("日").size(), plain.encode("日").size());
  for (const Tokenizer* tokenizer : {&fallback, &plain, &test::small_tokenizer(spec::TokenLayout::t5), &small_bpe()}) {
    const bool is_bpe = tokenizer == &small_bpe();
    const SubwordSampler sampler{*tokenizer, {.alpha = is_bpe ? 0 : 1e6}}, best{*tokenizer, {.alpha = 0, .best = 1}};
    EXPECT_EQ(sampler.is_bpe(), is_bpe);
    RandomStream random(1, 2);
    for (const std::string& text : uneasy_texts()) {
      EXPECT_EQ(sampler.encode(text, random), tokenizer->encode(text)) << text;
      EXPECT_EQ(best.encode(text, random), tokenizer->encode(text)) << text;
    }
  }
}

TEST(SubwordSampler, DrawsOtherIdsOfTheSameText) {
  for (const Tokenizer* tokenizer : {&test::small_tokenizer(spec::TokenLayout::marian), &small_bpe()}) {
    const SubwordSampler sampler{*tokenizer, {.alpha = .2}};
    std::size_t longer = 0;
    for (const std::string& text : test::verses(50).english) {
      RandomStream random(1, 2);
      const Ids ids = sampler.encode(text, random);
      EXPECT_EQ(tokenizer->decode(ids), tokenizer->decode(tokenizer->encode(text)));
      longer += ids.size() > tokenizer->encode(text).size() ? 1 : 0;
    }
    EXPECT_GT(longer, 45U);
  }
}

std::map<Ids, std::int64_t> draw(const Tokenizer& tokenizer, const char* text, double alpha) {
  const auto subword = Subword{.alpha = alpha}.make({.tokenizer = tokenizer, .languages = {}});
  std::map<Ids, std::int64_t> counts;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    RandomStream random(3, i);
    Example example = pair_of(text, "x");
    EXPECT_TRUE(subword->apply(example, &random));
    ++counts[example.source];
  }
  return counts;
}

TEST(SubwordSampler, DrawsSegmentationsOfAUnigramModelWithTheirProbability) {
  const Tokenizer& tokenizer = test::small_tokenizer(spec::TokenLayout::marian);
  std::function<std::map<Ids, double>(std::string_view)> all = [&](std::string_view text) {
    std::map<Ids, double> found;
    if (text.empty()) found[{}] = 0;
    for (std::size_t size = 1; size <= text.size(); ++size) {
      const auto id = tokenizer.id_of(text.substr(0, size));
      if (!id) continue;
      for (const auto& [rest, score] : all(text.substr(size))) {
        Ids ids{narrow<std::int32_t>(*id)};
        ids.insert(ids.end(), rest.begin(), rest.end());
        found[ids] = score + tokenizer.score(*id);
      }
    }
    return found;
  };
  std::map<Ids, double> wanted = all("\u2581there");
  EXPECT_GT(wanted.size(), 5U);
  for (auto& [ids, weight] : wanted) weight = std::exp(.3 * weight);
  EXPECT_GT(test::chi_squared_p(draw(tokenizer, "there", .3), wanted), improbable);
}

TEST(SubwordSampler, PassesOverMergesOfABpeModelWithTheirProbability) {
  std::map<Ids, double> wanted;
  const auto rank = [&](const std::string& left, const std::string& right) -> std::optional<double> {
    const auto id = small_bpe().id_of(left + right);
    return id ? std::optional{-static_cast<double>(small_bpe().score(*id))} : std::nullopt;
  };
  for (const auto& [pieces, p] : test::dropout_probabilities({"\u2581", "t", "h", "e", "r", "e"}, .3, rank)) {
    Ids ids;
    for (const std::string& piece : pieces) ids.push_back(narrow<std::int32_t>(*small_bpe().id_of(piece)));
    wanted[ids] += p;
  }
  EXPECT_GT(wanted.size(), 5U);
  EXPECT_GT(test::chi_squared_p(draw(small_bpe(), "there", .3), wanted), improbable);
}

TEST(Subword, DrawsAtRandomOnlyAboveAlpha0AndPlansForGrowth) {
  const auto plain = Subword{}.make(materials()), drawn = Subword{.alpha = .5, .growth = .5}.make(materials());
  EXPECT_FALSE(plain->is_random());
  EXPECT_TRUE(drawn->is_random());
  EXPECT_EQ(plain->longest({4, 5}, {}), (Lengths{4, 5}));
  EXPECT_EQ(drawn->longest({4, 5}, {}), (Lengths{6, 8}));
  Example example = pair_of("there", "there");
  EXPECT_TRUE(drawn->apply(example, nullptr));
  EXPECT_EQ(example.source, materials().tokenizer.encode("there"));
  const Subword base{.alpha = .5};
  EXPECT_NE(base.make(materials())->recipe(), plain->recipe());
  for (const Subword& other : {Subword{.alpha = .4}, Subword{.alpha = .5, .nbest = 3},
                               Subword{.alpha = .5, .growth = 0}, Subword{.alpha = .5, .growth = .25}})
    EXPECT_NE(other.make(materials())->recipe(), base.make(materials())->recipe());
}

TEST(Subword, PlansForHardlyAnyDrawThatIsLonger) {
  const Tokenizer json = Tokenizer::load(test::small_file("byte_level").first, {.ids = spec::TokenIds{}});
  const auto check = [](const Subword& config, const Tokenizer& tokenizer) {
    const auto drawn = config.make({.tokenizer = tokenizer, .languages = {}});
    int sides = 0, longer = 0;
    double planned = 0, made = 0;
    for (const std::string& verse : test::verses(600).of_both()) {
      Example plain = pair_of(verse, "");
      EXPECT_TRUE(drawn->apply(plain, nullptr));
      const Lengths longest = drawn->longest({narrow<std::uint32_t>(std::ssize(plain.source)), 0}, plain);
      RandomStream random(5, static_cast<std::uint64_t>(++sides));
      Example example = pair_of(verse, "");
      EXPECT_TRUE(drawn->apply(example, &random));
      longer += example.source.size() > longest.source ? 1 : 0;
      planned += longest.source;
      made += static_cast<double>(example.source.size());
    }
    EXPECT_LT(longer, .01 * sides);
    EXPECT_LT(planned, 1.35 * made) << config.alpha << " " << config.nbest;
  };
  const Tokenizer& unigram = materials().tokenizer;
  for (const double alpha : {.1, .3}) check({.alpha = alpha}, unigram);
  for (const std::int64_t nbest : {2, 64}) check({.alpha = .1, .nbest = nbest}, unigram);
  check({.alpha = .1}, small_bpe());
  check({.alpha = .1}, json);
}

TEST(Subword, DrawsAmongTheBest) {
  const auto two = Subword{.alpha = 1e-9, .nbest = 2}.make(materials());
  std::set<Ids> drawn;
  for (std::uint64_t i = 0; i < 200; ++i) {
    RandomStream random(3, i);
    Example example = pair_of("therefore", "x");
    EXPECT_TRUE(two->apply(example, &random));
    drawn.insert(example.source);
  }
  EXPECT_EQ(drawn.size(), 2U);
  EXPECT_TRUE(drawn.contains(materials().tokenizer.encode("therefore")));
}

TEST(Subword, RefusesWhatMeansNothing) {
  EXPECT_EQ(problems_of(Subword{}) + problems_of(Subword{.alpha = .1, .nbest = 64, .growth = 0}), "");
  EXPECT_EQ(problems_of(Subword{.alpha = -1}), "/alpha a number from 0 to 100\n");
  for (const std::int64_t nbest : {-2, 0, 1, 65})
    EXPECT_EQ(problems_of(Subword{.nbest = nbest}), "/nbest -1 (all), or 2 to 64\n");
  EXPECT_EQ(problems_of(Subword{.growth = 11}), "/growth a number from 0 to 10\n");
  const auto of_bpe = [](const Subword& config) {
    return test::refusal(Fault::config, [&] { (void)config.make({.tokenizer = small_bpe(), .languages = {}}); });
  };
  EXPECT_THAT(of_bpe({.alpha = 1.5}), HasSubstr("expected alpha of 0 to 1, since the tokenizer is BPE, got 1.5"));
  EXPECT_THAT(of_bpe({.alpha = .1, .nbest = 4}), HasSubstr("since BPE does not rank segmentations"));
  tokenizer::Pieces words{small_bpe().model_bytes()};
  words.model_type = 3;
  EXPECT_THAT(test::refusal(Fault::config, [&] { tokenizer::PieceSampler(words, {}); }),
              HasSubstr("one of words or characters"));
}

}  // namespace
}  // namespace argosy::data
