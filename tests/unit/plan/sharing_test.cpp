#include "plan/sharing.hpp"

#include <gmock/gmock.h>

#include "config/describe.hpp"
#include "core/error.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using plan::RunConfig;
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

const std::string by_language = R"("encoder": {"stacks": [{"layers": 1, "share": "source"}, {"layers": 2}]},
                                   "decoder": {"stacks": [{"layers": 2, "share": "target"}]})";
const std::string by_group = R"("encoder": {"stacks": [{"layers": 1, "share": "source_group"}]},
                                "decoder": {"stacks": [{"layers": 1, "share": "target_group"}]})";
const std::string groups = R"(, "groups": {"romance": ["fr"], "other": ["en", "cs"]})";

RunConfig read_modular(const std::string& model, const std::string& others = "", const std::string& data = "") {
  const std::string text = R"({"data": {"tokenizer": "t", "shards": "s")" + data + R"(},
      "tasks": {"languages": ["en", "fr", "cs"], "files": {"train": "{sorted_pair}.{language}"}, "except": ["cs-fr"]},
      "model": {"width": 32, "ff": 64, "heads": 2, "vocab_size": 50, )" +
                           model + "}" + others + "}";
  return config::from_document<RunConfig>(config::Document::parse(text, "test.json"));
}
std::string refused_modular(const std::string& model, const std::string& others = "", const std::string& data = "") {
  return refusal(Fault::config, [&] { (void)read_modular(model, others, data); });
}

TEST(Sharing, TasksAreTheCorporaAndRoutesTheirs) {
  const RunConfig config = read_modular(by_language);
  const spec::ModelSpec spec = plan::spec_of(config, 0);
  EXPECT_EQ(spec.sharing.tasks.size(), 5U);
  EXPECT_THAT(plan::routes_of(config, spec), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(spec.components.size(), 7U);
  const RunConfig plain = read_modular(R"("encoder": {"stacks": [{"layers": 2}]}, "decoder": {"layers": 2})");
  EXPECT_THAT(plan::routes_of(plain, plan::spec_of(plain, 0)), IsEmpty());
  EXPECT_THAT(plan::sharing_of(plain).tasks, IsEmpty());
  const RunConfig grouped = read_modular(by_group, groups);
  EXPECT_THAT(plan::routes_of(grouped, plan::spec_of(grouped, 0)), ElementsAre(0, 1, 2, 2, 1))
      << "en-cs and cs-en pass the components of one group";
}

TEST(Sharing, LinesNameComponentsAndTasks) {
  const spec::ModelSpec spec = plan::spec_of(read_modular(by_language), 0);
  const std::vector<std::string> lines = plan::task_lines(spec);
  EXPECT_EQ(lines.size(), 1U + 1 + 7 + 1 + 5);
  EXPECT_THAT(lines[0], HasSubstr("5 tasks, 7 components"));
  EXPECT_THAT(lines[3], testing::MatchesRegex("  encoder.en +[0-9]+  en-fr, en-cs"));
  EXPECT_THAT(lines[12], testing::MatchesRegex("  fr-en +[0-9]+  all, encoder.fr, decoder.en"));
  EXPECT_THAT(plan::components_line(spec), HasSubstr("7, all on every rank: all ("));
  EXPECT_EQ(
      plan::components_line(plan::spec_of(read_modular(R"("encoder": {"layers": 1}, "decoder": {"layers": 1})"), 0)),
      "");
}

TEST(Sharing, GroupsHaveEachLanguageOnceAndAreUsed) {
  EXPECT_THAT(refused_modular(by_language, groups), HasSubstr("groups must be absent, since no stack"));
  EXPECT_THAT(refused_modular(by_group), HasSubstr("a group for each language"));
  EXPECT_THAT(refused_modular(by_group, R"(, "groups": {"romance": ["fr"], "other": ["en"]})"),
              HasSubstr("none for cs"));
  EXPECT_THAT(refused_modular(by_group, R"(, "groups": {"romance": ["fr", "en"], "other": ["en", "cs"]})"),
              HasSubstr("each language in one group"));
  EXPECT_THAT(refused_modular(by_group, R"(, "groups": {"fr": ["fr"], "other": ["en", "cs"]})"),
              HasSubstr("a name that is no code of a language"));
  EXPECT_THAT(refused_modular(by_group, R"(, "groups": {"romance": ["fr", "xx"], "other": ["en", "cs"]})"),
              HasSubstr("xx"));
  EXPECT_THAT(refused_modular(by_group, R"(, "groups": {"none": [], "all": ["en", "cs", "fr"]})"),
              HasSubstr("at least one language"));
}

TEST(Sharing, NamesThatCannotBeThoseOfComponentsAreRefused) {
  const auto refused_corpus = [](const std::string& name, const std::string& language) {
    const std::string text = R"({"data": {"tokenizer": "t", "shards": "s", "corpora": [{"name": ")" + name +
                             R"(", "languages": ["en", ")" + language + R"("], "source": "a", "target": "b"}]},
        "model": {"width": 32, "ff": 64, "heads": 2, )" +
                             by_language + "}}";
    return refusal(Fault::config,
                   [&] { (void)config::from_document<RunConfig>(config::Document::parse(text, "odd.json")); });
  };
  EXPECT_THAT(refused_corpus("c", "zh Hans"), HasSubstr("en, zh Hans in corpus c"));
  EXPECT_THAT(refused_corpus("a/b", "fr"), HasSubstr("a/b"));
  EXPECT_THAT(refused_modular(by_group, R"(, "groups": {"a b": ["fr"], "other": ["en", "cs"]})"),
              HasSubstr("groups.a b must be named by"));
}

TEST(Sharing, APlainModelHasNoComponentsToNormalise) {
  const std::string by_component = R"(, "loss": {"normalise": "component"})";
  EXPECT_THAT(refused_modular(R"("encoder": {"layers": 2}, "decoder": {"layers": 2})", by_component),
              HasSubstr("loss.normalise must be step"));
  EXPECT_EQ(read_modular(by_language, by_component).loss.normalise, plan::LossNormalisation::component);
}

TEST(Sharing, ComponentsHaveAdaptersOfTheirOwn) {
  const RunConfig config = read_modular(by_language, R"(, "lora": {"rank": 4, "targets": ["encoder.en", "decoder"]},
      "init_from": "x")");
  const spec::ModelSpec spec = plan::spec_of(config, 0);
  std::vector<std::string> adapted;
  for (const spec::Unit& unit : spec.units)
    if (unit.has_adapters()) adapted.push_back(unit.name + " of " + spec.components[unit.component].name);
  EXPECT_THAT(adapted, ElementsAre("encoder.en.0.adapters of encoder.en", "decoder.fr.0.adapters of decoder.fr",
                                   "decoder.fr.1.adapters of decoder.fr", "decoder.cs.0.adapters of decoder.cs",
                                   "decoder.cs.1.adapters of decoder.cs", "decoder.en.0.adapters of decoder.en",
                                   "decoder.en.1.adapters of decoder.en"));
}

TEST(Sharing, WhatIsTakenFromAnotherModelGoesByTheNamesOfComponents) {
  const auto from = [](const std::string& components) {
    return R"(, "init_from": {"from": "x", "components": [)" + components + "]}";
  };
  const RunConfig config =
      read_modular(by_language, from(R"("embeddings.en", "output.en", "encoder.all", "decoder.fr")"));
  const plan::InitSource& source = config.init_from->sources.at(0);
  EXPECT_THAT(source.components, ElementsAre("embeddings.en", "output.en", "encoder.all", "decoder.fr"));
  EXPECT_TRUE(source.has("embeddings"));
  EXPECT_FALSE(read_modular(by_language, from(R"("decoder.fr")")).init_from->sources.at(0).has("embeddings"));
  for (const char* wrong : {R"("embedings.en")", R"("output")", R"("encoders.en")"})
    EXPECT_THAT(refused_modular(by_language, from(wrong)), HasSubstr("or a component such as encoder.fr")) << wrong;
}

TEST(Sharing, KeysThatItDoesNotGoWithAreRefused) {
  EXPECT_THAT(refused_modular(by_language, R"(, "validation": {"sets": [{"source": "a", "target": "b"}]})"),
              HasSubstr("which parts are used"));
  EXPECT_THAT(refused_modular(R"("encoder": {"layers": 2, "stacks": [{"layers": 2}]}, "decoder": {"layers": 2})"),
              HasSubstr("absent, since stacks"));
  EXPECT_THAT(refused_modular(R"("type": "decoder", "decoder": {"stacks": [{"layers": 2}]})"), HasSubstr("stacks"));
  EXPECT_THAT(refused_modular(R"("encoder": {"stacks": [{"layers": 0}]}, "decoder": {"layers": 2})"),
              HasSubstr("an integer from 1 to"));
}

}  // namespace
}  // namespace argosy::test
