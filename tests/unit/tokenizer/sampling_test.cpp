#include <gmock/gmock.h>

#include <cmath>

#include "support/chi_squared.hpp"
#include "support/dropout.hpp"
#include "support/tokenizer_files.hpp"

namespace argosy::tokenizer {
namespace {

constexpr int draws = 20000;
constexpr double improbable = 1e-3;
using Ids = std::vector<std::int32_t>;

std::map<Ids, std::int64_t> draw(const Pipeline& pipeline, const std::string& text, const Sampling& how) {
  std::map<Ids, std::int64_t> counts;
  for (std::uint64_t i = 0; i < draws; ++i) {
    RandomStream random(7, i);
    ++counts[pipeline.sample(text, how, random)];
  }
  return counts;
}

Pipeline unigram_of_ab() {
  const std::pair<const char*, double> pieces[] = {{"<unk>", 0}, {"a", -2},   {"b", -2.5}, {"c", -3},  {"ab", -3},
                                                   {"bc", -3.5}, {"abc", -5}, {"ca", -6},  {"cab", -6}};
  boost::json::array vocabulary;
  for (const auto& [piece, score] : pieces) vocabulary.push_back(boost::json::array{piece, score});
  return Pipeline::load(boost::json::serialize(boost::json::object{
                            {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", std::move(vocabulary)}}}}),
                        "pieces");
}

/// All ways to cut a text into pieces, with the sums of their scores.
std::map<Ids, double> segmentations(const Pipeline& pipeline, const std::string& text) {
  std::map<Ids, double> all;
  if (text.empty()) all[{}] = 0;
  for (std::size_t size = 1; size <= text.size(); ++size) {
    const auto id = pipeline.id_of(text.substr(0, size));
    if (!id) continue;
    for (const auto& [rest, score] : segmentations(pipeline, text.substr(size))) {
      Ids ids{*id};
      ids.insert(ids.end(), rest.begin(), rest.end());
      all[ids] = score + pipeline.score(*id);
    }
  }
  return all;
}

TEST(SampledUnigram, DrawsEachSegmentationWithItsProbability) {
  const Pipeline pipeline = unigram_of_ab();
  const std::string text = "abcabc";
  for (const double alpha : {.2, 1.}) {
    std::map<Ids, double> wanted = segmentations(pipeline, text);
    EXPECT_GT(wanted.size(), 15U);
    for (auto& [ids, weight] : wanted) weight = std::exp(alpha * weight);
    EXPECT_GT(test::chi_squared_p(draw(pipeline, text, {.alpha = alpha}), wanted), improbable) << alpha;
  }
}

TEST(SampledUnigram, DrawsAmongTheBestAlone) {
  const Pipeline pipeline = unigram_of_ab();
  std::multimap<double, Ids> by_score;
  for (const auto& [ids, score] : segmentations(pipeline, "abcab")) by_score.emplace(-score, ids);
  for (const std::int64_t best : {1, 4}) {
    std::map<Ids, double> wanted;
    auto next = by_score.begin();
    for (std::int64_t i = 0; i < best; ++i, ++next) wanted[next->second] = std::exp(.3 * -next->first);
    ASSERT_NE(std::prev(next)->first, next->first) << "the last of the best is not the only one of its score";
    const auto counts = draw(pipeline, "abcab", {.alpha = .3, .best = best});
    EXPECT_EQ(counts.size(), static_cast<std::size_t>(best));
    if (best > 1) {
      EXPECT_GT(test::chi_squared_p(counts, wanted), improbable);
    }
  }
}

TEST(SampledUnigram, IsTheBestSegmentationWithoutNoise) {
  const Pipeline pipeline = test::small_pipeline("unigram");
  for (const std::string& text : {test::small_file("unigram").second, std::string{"日本 a  日"}, std::string{}}) {
    RandomStream random(1, 2);
    EXPECT_EQ(pipeline.sample(text, {.alpha = 1e6}, random), pipeline.encode(text));
    EXPECT_EQ(pipeline.sample(text, {.alpha = 1, .best = 1}, random), pipeline.encode(text));
  }
}

Pipeline bpe_of(std::initializer_list<const char*> merges) {
  boost::json::object vocabulary;
  boost::json::array list;
  const auto add = [&](const std::string& piece) { vocabulary.emplace(piece, vocabulary.size()); };
  for (const char* piece : {"a", "b", "c", "d"}) add(piece);
  for (const std::string merge : merges) {
    const std::size_t blank = merge.find(' ');
    add(merge.substr(0, blank) + merge.substr(blank + 1));
    list.emplace_back(merge);
  }
  return Pipeline::load(boost::json::serialize(
                            boost::json::object{{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", list}}}}),
                        "merges");
}

TEST(SampledBpe, PassesOverMergesWithTheirProbability) {
  const std::pair<std::string, std::string> merges[] = {{"a", "b"}, {"c", "a"}, {"ab", "c"}, {"b", "c"}, {"abc", "d"}};
  const Pipeline pipeline = bpe_of({"a b", "c a", "ab c", "b c", "abc d"});
  const auto rank = [&](const std::string& left, const std::string& right) -> std::optional<double> {
    for (std::size_t i = 0; i < std::size(merges); ++i)
      if (merges[i] == std::pair{left, right}) return static_cast<double>(i);
    return std::nullopt;
  };
  for (const double alpha : {.1, .6}) {
    std::map<Ids, double> wanted;
    for (const auto& [pieces, p] : test::dropout_probabilities({"c", "a", "b", "c", "d"}, alpha, rank)) {
      Ids ids;
      for (const std::string& piece : pieces) ids.push_back(*pipeline.id_of(piece));
      wanted[ids] += p;
    }
    EXPECT_GE(wanted.size(), 5U);
    EXPECT_GT(test::chi_squared_p(draw(pipeline, "cabcd", {.alpha = alpha}), wanted), improbable) << alpha;
  }
}

TEST(SampledBpe, IsTheUsualOneWithoutNoiseAndCharactersWithNoMerge) {
  for (const char* name : {"byte_level", "byte_fallback", "words"}) {
    const Pipeline pipeline = test::small_pipeline(name);
    const std::string text = test::small_file(name).second;
    RandomStream random(1, 2);
    EXPECT_EQ(pipeline.sample(text, {.alpha = 0}, random), pipeline.encode(text)) << name;
    EXPECT_GT(pipeline.sample(text, {.alpha = 1}, random).size(), pipeline.encode(text).size()) << name;
    EXPECT_TRUE(pipeline.is_bpe());
  }
  EXPECT_FALSE(test::small_pipeline("unigram").is_bpe());
}

TEST(SampledBpe, KeepsAWordThatIsAPieceUnlessAMergeIsPassedOver) {
  const Pipeline whole =
      test::changed("byte_level", {{"/model/ignore_merges", true}, {"/model/merges", boost::json::array{}}});
  const std::string word = " there";  // none of its merges is there
  ASSERT_EQ(whole.encode(word).size(), 1U);
  RandomStream random(1, 2);
  EXPECT_EQ(whole.sample(word, {.alpha = .5}, random), whole.encode(word));
}

TEST(Sampling, TakesTimeThatGrowsWithTheText) {
  std::string text;
  while (text.size() < 1000000) text += "abcabcabdd";
  RandomStream random(1, 2);
  EXPECT_GT(unigram_of_ab().sample(text, {.alpha = .1}, random).size(), text.size() / 4);
  EXPECT_GT(bpe_of({"a b", "ab c"}).sample(text, {.alpha = .1}, random).size(), text.size() / 4);
}

}  // namespace
}  // namespace argosy::tokenizer
