#include "plan/tasks.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "config/describe.hpp"
#include "plan/run_config.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using plan::RunConfig;
using testing::ElementsAre;

/// members: of the section tasks, after its languages en, fr and cs. others: other sections.
RunConfig read_tasks(const std::string& members, const std::string& others = "",
                     const std::string& data = R"("tokenizer": "t", "shards": "s")") {
  const std::string text =
      R"({"data": {)" + data + R"(}, "tasks": {"languages": ["en", "fr", "cs"], )" + members + "}" + others + "}";
  return config::from_document<RunConfig>(config::Document::parse(text, "test.json"));
}
const std::string train = R"("files": {"train": "text/{sorted_pair}/train.{language}"})";

std::vector<std::string> names_of(const RunConfig& config) {
  std::vector<std::string> names;
  for (const data::CorpusConfig& corpus : config.data.corpora) names.push_back(corpus.name);
  return names;
}

std::string refused(const std::string& members, const std::string& others = "",
                    const std::string& data = R"("tokenizer": "t", "shards": "s")") {
  return refusal(Fault::config, [&] { (void)read_tasks(members, others, data); });
}

TEST(Tasks, AreACorpusForEachDirection) {
  const RunConfig config = read_tasks(train);
  EXPECT_THAT(names_of(config), ElementsAre("en-fr", "en-cs", "fr-en", "fr-cs", "cs-en", "cs-fr"));
  const data::CorpusConfig& corpus = config.data.corpora[4];
  EXPECT_EQ(corpus.source, config::StringOrList{"text/cs-en/train.cs"});
  EXPECT_EQ(corpus.target, config::StringOrList{"text/cs-en/train.en"});
  EXPECT_THAT(corpus.languages, ElementsAre("cs", "en"));
  EXPECT_EQ(data::prefixes_of(corpus), (data::Prefixes{.source = {"<2en>"}}));
  EXPECT_TRUE(corpus.transforms.empty());
  EXPECT_TRUE(config.validation.sets.empty());
  EXPECT_FALSE(config.tasks);
}

TEST(Tasks, PatternsChooseAndLeaveOut) {
  EXPECT_THAT(names_of(read_tasks(train + R"(, "pairs": ["en-*", "cs-en"], "except": ["*-fr"])")),
              ElementsAre("en-cs", "cs-en"));
}

TEST(Tasks, WeightsAndStartsAreThoseOfTheClosestPattern) {
  const RunConfig config =
      read_tasks(train + R"(, "weight": {"*-*": 2, "cs-*": 3, "cs-en": 5}, "start": {"*-cs": 700}, "temperature": 5)");
  std::vector<double> weights;
  std::vector<double> starts;
  for (const data::CorpusConfig& corpus : config.data.corpora) {
    weights.push_back(corpus.weight);
    starts.push_back(corpus.start.count);
  }
  EXPECT_THAT(weights, ElementsAre(2, 2, 2, 2, 5, 3));
  EXPECT_THAT(starts, ElementsAre(0, 700, 0, 700, 0, 0));
  EXPECT_EQ(config.data.temperature, 5);
}

TEST(Tasks, FilesAreNamedBySideAndTask) {
  const RunConfig config = read_tasks(
      R"("pairs": ["fr-en"], "files": {"train": "{pair}/{source}2{target}.{language}", "validation": "{sorted_pair}.{language}"})",
      R"(, "validation": {"sets": [{"source": "own.en", "target": "own.fr"}]})");
  EXPECT_EQ(config.data.corpora.at(0).source, config::StringOrList{"fr-en/fr2en.fr"});
  EXPECT_EQ(config.data.corpora.at(0).target, config::StringOrList{"fr-en/fr2en.en"});
  ASSERT_EQ(config.validation.sets.size(), 2U) << "next to the configuration's own";
  EXPECT_EQ(config.validation.sets[1].source, config::StringOrList{"en-fr.fr"});
  EXPECT_EQ(config.validation.sets[1].target, config::StringOrList{"en-fr.en"});
  EXPECT_EQ(config.validation.sets[1].corpus, "fr-en");
}

TEST(Tasks, TextOfALanguageIsRestoredFromNoise) {
  const RunConfig config = read_tasks(
      R"("pairs": [], "denoise": ["cs"], "files": {"denoise": "mono.{language}"}, "source_prefix": ["<to>", "<{to}>"],
         "transforms": [{"type": "max_length", "source": 9}], "weight": {"cs": 4})");
  ASSERT_THAT(names_of(config), ElementsAre("cs"));
  const data::CorpusConfig& corpus = config.data.corpora[0];
  EXPECT_EQ(corpus.source, config::StringOrList{"mono.cs"});
  EXPECT_EQ(corpus.target, config::StringOrList{"mono.cs"});
  EXPECT_EQ(corpus.weight, 4);
  EXPECT_THAT(data::prefixes_of(corpus).source, ElementsAre("<to>", "<cs>"));
  ASSERT_EQ(corpus.transforms.size(), 2U);
  EXPECT_EQ(std::get<data::MaxLength>(corpus.transforms[0].value).source, 9);
  EXPECT_EQ(std::get<data::Denoise>(corpus.transforms[1].value).mask, 0.3);
}

TEST(Tasks, AreReadBackAsTheCorporaThatTheyBecame) {
  const boost::json::value once = config::to_json(read_tasks(train));
  EXPECT_EQ(config::to_json(config::from_document<RunConfig>(config::Document::parse(config::text_of(once), "again"))),
            once);
}

TEST(Tasks, RefuseWhatDoesNotFit) {
  EXPECT_TRUE(says(refused(train + R"(, "pairs": ["en-de"])"), "tasks.pairs.0", "two of en, fr, cs or *", "got en-de"));
  EXPECT_TRUE(says(refused(train + R"(, "except": ["en"])"), "tasks.except.0", "joined by a hyphen"));
  EXPECT_TRUE(says(refused(train + R"(, "except": ["*-*"])"), "at least one task"));
  EXPECT_TRUE(says(refused(train + R"(, "pairs": ["en-fr"], "weight": {"fr-*": 2})"), "tasks.weight",
                   "patterns of tasks", "fr-*"));
  EXPECT_TRUE(says(refused(train + R"(, "start": {"en-*": 2, "*-fr": 3})"), "tasks.start", "closest to en-fr"));
  EXPECT_TRUE(says(refused(R"("files": {"train": "text/{pair}"})"), "tasks.files.train", "{language}"));
  EXPECT_TRUE(says(refused(R"("files": {"train": "text/{lang}.{language}"})"), "tasks.files.train", "{lang}"));
  EXPECT_TRUE(says(refused(R"("pairs": ["en-fr"])"), "tasks.files.train", "none"));
  EXPECT_TRUE(says(refused(train + R"(, "denoise": ["de"])"), "tasks.denoise.0", "tasks.languages"));
  EXPECT_TRUE(says(refused(train + R"(, "denoise": ["cs"])"), "tasks.files.denoise", "none"));
  EXPECT_TRUE(says(refused(train + R"(, "temperature": 5)", "", R"("tokenizer": "t", "shards": "s", "temperature": 2)"),
                   "data.temperature", "tasks.temperature"));
  EXPECT_TRUE(
      says(refused(train, "",
                   R"("tokenizer": "t", "shards": "s", "corpora": [{"name": "c", "source": "a", "target": "b"}])"),
           "data.corpora", "absent, since tasks"));
  EXPECT_TRUE(says(refused(train, R"(, "model": {"type": "decoder"})"), "tasks must be absent"));
  EXPECT_TRUE(says(refused(train + R"(, "weight": {"en-fr": -1})"), "tasks.weight must be a number"));
  EXPECT_TRUE(says(refused(train + R"(, "source_prefix": ["a b"])"), "tasks.source_prefix.0"));
}

TEST(Tasks, RefuseCodesThatPatternsCannotName) {
  const auto with = [](const std::string& languages) {
    return refusal(Fault::config, [&] {
      (void)config::from_document<RunConfig>(config::Document::parse(
          R"({"data": {"tokenizer": "t", "shards": "s"}, "tasks": {"languages": )" + languages + ", " + train + "}}",
          "test.json"));
    });
  };
  EXPECT_TRUE(says(with(R"(["en", "zh-Hans"])"), "tasks.languages.1", "letters, digits and _"));
  EXPECT_TRUE(says(with(R"(["en", "fr", "en"])"), "tasks.languages.2", "once"));
  EXPECT_TRUE(says(with(R"(["en"])"), "at least one task"));
}

}  // namespace
}  // namespace argosy::test
