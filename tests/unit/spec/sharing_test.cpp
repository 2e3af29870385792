#include "spec/sharing.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "spec/model_spec.hpp"
#include "support/refusal.hpp"
#include "support/small_model.hpp"

namespace argosy::spec {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::Pair, testing::UnorderedElementsAre;

ModelConfig config_of(std::vector<StackConfig> encoder, std::vector<StackConfig> decoder) {
  ModelConfig config = argosy::test::model_config({.width = 16, .ff = 24, .heads = 2});
  config.encoder.layers.reset();
  config.decoder.layers.reset();
  config.encoder.stacks = std::move(encoder);
  config.decoder.stacks = std::move(decoder);
  return config;
}

ModelSpec spec_of(const ModelConfig& config, Sharing sharing) { return {resolve(config, 60), std::move(sharing)}; }

const Sharing three{.tasks = {{"en-fr", "en", "fr"}, {"en-cs", "en", "cs"}, {"fr-en", "fr", "en"}},
                    .groups = {{"romance", {"fr"}}, {"others", {"en", "cs"}}}};

std::vector<std::string> names_on_route(const ModelSpec& spec, const std::string& task) {
  std::vector<std::string> names;
  for (const std::size_t visit : spec.routes[spec.route_of.at(task)])
    names.push_back(spec.units[spec.visits[visit].units.front()].name);
  return names;
}

std::vector<std::string> names_of_components(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const Component& component : spec.components) names.push_back(component.name);
  return names;
}

std::vector<std::string> parameters_of(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const Unit& unit : spec.units)
    for (const Parameter& parameter : unit.parameters) names.push_back(unit.name + " " + parameter.name);
  return names;
}

TEST(Sharing, EachTaskPassesTheComponentsOfItsLanguages) {
  const ModelSpec spec =
      spec_of(config_of({{1, Share::source}, {2, Share::all}}, {{1, Share::all}, {1, Share::target}}), three);
  EXPECT_THAT(names_of_components(spec),
              ElementsAre("all", "encoder.en", "encoder.fr", "decoder.fr", "decoder.cs", "decoder.en"));
  EXPECT_THAT(spec.components[1].tasks, ElementsAre("en-fr", "en-cs"));
  EXPECT_THAT(spec.components[0].tasks, ElementsAre("en-fr", "en-cs", "fr-en"));
  EXPECT_THAT(names_on_route(spec, "en-cs"), ElementsAre("embedding", "encoder.en.0", "encoder.1", "encoder.2",
                                                         "embedding", "decoder.0", "decoder.cs.1", "embedding"));
  EXPECT_THAT(names_on_route(spec, "fr-en"), ElementsAre("embedding", "encoder.fr.0", "encoder.1", "encoder.2",
                                                         "embedding", "decoder.0", "decoder.en.1", "embedding"));
  EXPECT_EQ(spec.architecture.encoder_layers, 3);
  for (const std::vector<std::size_t>& route : spec.routes) EXPECT_TRUE(std::ranges::is_sorted(route));
  const Unit& own = spec.units[spec.visits[spec.routes[1][1]].units.front()];
  EXPECT_EQ(own.component, 1U);
  EXPECT_EQ(own.parameters.front().name, "encoder.en/layer_0/self_attention/layer_norm/gamma");
}

TEST(Sharing, EveryRuleMakesItsComponents) {
  const auto components = [](Share encoder, Share decoder) {
    std::vector<std::string> names = names_of_components(spec_of(config_of({{1, encoder}}, {{1, decoder}}), three));
    names.erase(names.begin());
    return names;
  };
  EXPECT_THAT(components(Share::all, Share::all), IsEmpty());
  EXPECT_THAT(components(Share::source, Share::target),
              ElementsAre("encoder.en", "encoder.fr", "decoder.fr", "decoder.cs", "decoder.en"));
  EXPECT_THAT(components(Share::target, Share::source),
              ElementsAre("encoder.to_fr", "encoder.to_cs", "encoder.to_en", "decoder.from_en", "decoder.from_fr"));
  EXPECT_THAT(components(Share::pair, Share::all), ElementsAre("encoder.en-fr", "encoder.en-cs", "encoder.fr-en"));
  EXPECT_THAT(components(Share::source_group, Share::target_group),
              ElementsAre("encoder.others", "encoder.romance", "decoder.romance", "decoder.others"));
  EXPECT_THAT(components(Share::task, Share::all),
              ElementsAre("encoder.task_en-fr", "encoder.task_en-cs", "encoder.task_fr-en"));
}

TEST(Sharing, TasksWithTheSameComponentsHaveOneRoute) {
  Sharing sharing = three;
  sharing.tasks.push_back({"en-fr-news", "en", "fr"});
  const ModelSpec by_target = spec_of(config_of({{1, Share::all}}, {{1, Share::target}}), sharing);
  EXPECT_EQ(by_target.routes.size(), 3U);
  EXPECT_EQ(by_target.route_of.at("en-fr-news"), by_target.route_of.at("en-fr"));
  const ModelSpec by_task = spec_of(config_of({{1, Share::task}}, {{1, Share::target}}), sharing);
  EXPECT_EQ(by_task.routes.size(), 4U);
}

TEST(Sharing, StacksForAllAreThePlainModel) {
  const ModelConfig stacked = config_of({{1, Share::all}, {2, Share::all}}, {{2, Share::all}});
  ModelConfig plain = config_of({}, {});
  plain.encoder.layers = 3;
  plain.decoder.layers = 2;
  const ModelSpec a = spec_of(stacked, three), b = resolve(plain, 60);
  EXPECT_EQ(parameters_of(a), parameters_of(b));
  EXPECT_EQ(a.routes, b.routes);
  EXPECT_EQ(a.routes.size(), 1U);
  EXPECT_EQ(a.components.size(), 1U);
  EXPECT_TRUE(is_plain(a.architecture));
  EXPECT_FALSE(is_plain(resolve(config_of({{1, Share::pair}}, {{1, Share::all}}), 60)));
}

TEST(Sharing, ARouteIsAModelOfItsOwn) {
  ModelConfig config = config_of({{1, Share::source}, {1, Share::all}}, {{2, Share::target}});
  config.encoder.position = config.decoder.position = Position::t5;
  const ModelSpec whole = spec_of(config, three);
  const RouteModel route = model_of_route(whole, whole.route_of.at("en-cs"));
  ModelConfig plain = config;
  plain.encoder.stacks.clear();
  plain.decoder.stacks.clear();
  plain.encoder.layers = plain.decoder.layers = 2;
  EXPECT_EQ(parameters_of(route.spec), parameters_of(resolve(plain, 60)));
  EXPECT_EQ(route.stored.at("encoder/layer_0/ffn/linear_0/weight"), "encoder.en/layer_0/ffn/linear_0/weight");
  EXPECT_EQ(route.stored.at("encoder/layer_1/ffn/linear_0/weight"), "encoder/layer_1/ffn/linear_0/weight");
  EXPECT_EQ(route.stored.at("decoder/layer_1/ffn/linear_0/weight"), "decoder.cs/layer_1/ffn/linear_0/weight");
  const std::string bias = "decoder/layer_0/self_attention/relative_attention_bias";
  EXPECT_EQ(route.stored.at(bias), bias) << "all tasks share it";
  std::size_t parameters = 0;
  for (const Unit& unit : route.spec.units) parameters += unit.parameters.size();
  EXPECT_EQ(route.stored.size(), parameters);
}

std::string refused_task(const ModelSpec& spec, const std::string& name) {
  return test::refusal(Fault::usage, [&] { (void)model_of_task(spec, task_named(spec.sharing, name)); });
}

TEST(Sharing, ATaskIsTheModelOfItsComponentsTrainedOrNot) {
  const ModelSpec whole =
      spec_of(config_of({{1, Share::source}, {2, Share::source_group}}, {{1, Share::all}, {1, Share::target}}), three);
  for (const Task& task : three.tasks)
    EXPECT_EQ(model_of_task(whole, task).stored, model_of_route(whole, whole.route_of.at(task.name)).stored);
  const RouteModel pair = model_of_task(whole, task_named(three, "fr-cs"));
  EXPECT_EQ(pair.stored.at("encoder/layer_0/ffn/linear_0/weight"), "encoder.fr/layer_0/ffn/linear_0/weight");
  EXPECT_EQ(pair.stored.at("encoder/layer_2/ffn/linear_0/weight"), "encoder.romance/layer_2/ffn/linear_0/weight");
  EXPECT_EQ(pair.stored.at("decoder/layer_0/ffn/linear_0/weight"), "decoder/layer_0/ffn/linear_0/weight");
  EXPECT_EQ(pair.stored.at("decoder/layer_1/ffn/linear_0/weight"), "decoder.cs/layer_1/ffn/linear_0/weight");
  EXPECT_THAT(refused_task(whole, "cs-fr"), HasSubstr("needs the component encoder.cs, which the model does not have"));
  Sharing more = three;
  more.groups["others"].emplace_back("sk");
  const ModelSpec by_group = spec_of(config_of({{1, Share::source_group}}, {{1, Share::target}}), more);
  EXPECT_EQ(model_of_task(by_group, task_named(more, "sk-fr")).stored.at("encoder/layer_0/ffn/linear_0/weight"),
            "encoder.others/layer_0/ffn/linear_0/weight")
      << "a language that only groups have";
  const ModelSpec by_task = spec_of(config_of({{1, Share::task}}, {{1, Share::all}}), three);
  EXPECT_THAT(refused_task(by_task, "fr-cs"), HasSubstr("needs the component encoder.task_fr-cs"));
}

TEST(Sharing, TasksAreFoundByNameOrByTheirLanguages) {
  Sharing sharing{.tasks = {{"news", "en", "zh-Hans"}, {"en-en", "en", "en"}, {"back", "zh-Hans", "en"}}, .groups = {}};
  EXPECT_EQ(task_named(sharing, "news"), sharing.tasks[0]);
  EXPECT_EQ(task_named(sharing, "en-zh-Hans"), (Task{"en-zh-Hans", "en", "zh-Hans"}));
  EXPECT_EQ(task_named(sharing, "zh-Hans-en"), (Task{"zh-Hans-en", "zh-Hans", "en"}));
  for (const char* const unknown : {"en", "en-zh", "-", "en-", "en-fr"})
    EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)task_named(sharing, unknown); }),
                HasSubstr("a pair of its languages (en, zh-Hans); its tasks are news, en-en, back"))
        << unknown;
  for (int i = 0; i < 20; ++i) sharing.tasks.push_back({fmt::format("t{}", i), "en", "en"});
  EXPECT_THAT(text_of(sharing.tasks), testing::EndsWith("t8 and 11 more"));
}

TEST(Sharing, GroupsOfStacksHaveTheLanguagesOfAllTasks) {
  Sharing sharing = three;
  sharing.groups.erase("romance");
  const std::string said = test::refusal(Fault::config, [&] {
    (void)spec_of(config_of({{1, Share::source_group}}, {{1, Share::all}}), sharing);
  });
  EXPECT_THAT(said,
              HasSubstr("the task fr-en needs the group of the language fr, which is in none; add it to a group"));
}

TEST(Sharing, ManyDirectionsAreListedQuickly) {
  Sharing sharing;
  for (int source = 0; source < 120; ++source)
    for (int target = 0; target < 120; ++target)
      sharing.tasks.push_back({fmt::format("{}-{}", source, target), std::to_string(source), std::to_string(target)});
  const Clock clock;
  const double begin_s = clock.monotonic_s();
  const ModelSpec whole = spec_of(config_of({{1, Share::source}}, {{1, Share::target}}), sharing);
  EXPECT_EQ(whole.routes.size(), 14'400U);
  EXPECT_EQ(whole.components.size(), 241U);
  constexpr double far_above_s = 10;  // 0.1 s; a search through all tasks of a component for each visit takes 30 s
  EXPECT_LT(clock.monotonic_s() - begin_s, far_above_s);
}

/// With a matrix for each language, whose output has the same one or its own.
ModelConfig by_language(bool tied, bool tied_inputs) {
  ModelConfig config = config_of({{1, Share::all}}, {{1, Share::target}});
  config.embeddings.share = EmbeddingShare::language;
  config.tie_embeddings = tied;
  config.tie_inputs = tied_inputs;
  return config;
}

TEST(Sharing, EachLanguageMayHaveItsEmbeddings) {
  const ModelSpec tied = spec_of(by_language(true, true), three);
  EXPECT_THAT(names_of_components(tied), ElementsAre("all", "embeddings.en", "embeddings.fr", "embeddings.cs",
                                                     "decoder.fr", "decoder.cs", "decoder.en"));
  EXPECT_THAT(tied.components[1].tasks, ElementsAre("en-fr", "en-cs", "fr-en"));
  EXPECT_THAT(tied.components[3].tasks, ElementsAre("en-cs"));
  EXPECT_THAT(names_on_route(tied, "fr-en"),
              ElementsAre("embeddings.fr", "encoder.0", "embeddings.en", "decoder.en.0", "embeddings.en"));
  EXPECT_EQ(tied.units.front().component, 0U) << "all ranks have it";
  EXPECT_EQ(tied.routes.size(), 3U);
  const ModelSpec inputs = spec_of(by_language(false, true), three);
  EXPECT_THAT(names_on_route(inputs, "en-fr"),
              ElementsAre("embeddings.en", "encoder.0", "embeddings.fr", "decoder.fr.0", "output.fr"));
  const ModelSpec outputs = spec_of(by_language(true, false), three);
  EXPECT_THAT(names_on_route(outputs, "en-fr"), ElementsAre("source_embeddings.en", "encoder.0", "target_embeddings.fr",
                                                            "decoder.fr.0", "target_embeddings.fr"));
  const ModelSpec untied = spec_of(by_language(false, false), three);
  EXPECT_THAT(names_on_route(untied, "en-fr"),
              ElementsAre("source_embeddings.en", "encoder.0", "target_embeddings.fr", "decoder.fr.0", "output.fr"));
}

TEST(Sharing, WhatAllLanguagesUseIsSharedNextToTheirEmbeddings) {
  ModelConfig config = by_language(true, true);
  config.encoder.position = Position::learned;
  config.norm_position = NormPosition::pre;
  const ModelSpec spec = spec_of(config, three);
  EXPECT_EQ(spec.units.front().name, "shared");
  EXPECT_THAT(spec.units.front().parameters,
              ElementsAre(testing::Field(&Parameter::name, "encoder/position_encodings/encodings"),
                          testing::Field(&Parameter::name, "encoder/layer_norm/gamma"),
                          testing::Field(&Parameter::name, "encoder/layer_norm/beta"),
                          testing::Field(&Parameter::name, "decoder/layer_norm/gamma"),
                          testing::Field(&Parameter::name, "decoder/layer_norm/beta")));
  for (const Visit& visit : spec.visits) {
    const bool embeds = visit.name.starts_with("source.") || visit.name.starts_with("target.");
    EXPECT_EQ(visit.units.size(), embeds || visit.name.starts_with("head.") ? 2U : 1U) << visit.name;
  }
}

TEST(Sharing, ATaskReadsOneLanguageAndWritesAnother) {
  const ModelSpec whole = spec_of(by_language(true, true), three);
  const RouteModel route = model_of_route(whole, whole.route_of.at("en-cs"));
  ModelConfig plain = by_language(true, false);
  plain.embeddings.share = EmbeddingShare::all;
  plain.encoder.stacks.clear();
  plain.decoder.stacks.clear();
  plain.encoder.layers = plain.decoder.layers = 1;
  EXPECT_EQ(parameters_of(route.spec), parameters_of(resolve(plain, 60)));
  EXPECT_EQ(parameters_of(route.spec), parameters_of(resolve(as_plain(by_language(true, true)), 60)));
  EXPECT_EQ(route.stored.at("encoder/embeddings_0/weight"), "embeddings.en/weight");
  EXPECT_EQ(route.stored.at("decoder/embeddings/weight"), "embeddings.cs/weight");
  EXPECT_EQ(route.stored.at("decoder/projection/bias"), "embeddings.cs/bias");
  std::size_t parameters = 0;
  for (const Unit& unit : route.spec.units) parameters += unit.parameters.size();
  EXPECT_EQ(route.stored.size(), parameters);
  EXPECT_EQ(model_of_task(whole, task_named(three, "fr-cs")).stored.at("encoder/embeddings_0/weight"),
            "embeddings.fr/weight");
  EXPECT_THAT(refused_task(whole, "cs-fr"), HasSubstr("cs-fr reads cs, which no task of the model does"));
  const ModelSpec untied = spec_of(by_language(false, false), three);
  EXPECT_EQ(model_of_route(untied, untied.route_of.at("en-cs")).stored.at("decoder/projection/weight"),
            "output.cs/weight");
}

TEST(Sharing, EmbeddingsOfALanguageHaveItsName) {
  const ModelSpec spec = spec_of(by_language(false, true), three);
  std::map<std::string, std::vector<std::string>> named;
  for (const Unit& unit : spec.units)
    for (const Parameter& parameter : unit.parameters)
      for (const char* name : {"embeddings", "embeddings.fr", "output.fr", "embeddings.xx", "encoder", "decoder.all"})
        if (is_of(parameter, name) && parameter.is_by_id()) named[name].push_back(parameter.name);
  EXPECT_THAT(named["embeddings"].size(), 3U + 3 * 2) << "three matrices, and outputs with their biases";
  EXPECT_THAT(named["embeddings.fr"], ElementsAre("embeddings.fr/weight"));
  EXPECT_THAT(named["output.fr"], UnorderedElementsAre("output.fr/weight", "output.fr/bias"));
  EXPECT_EQ(named.size(), 3U);
}

TEST(Sharing, TwoComponentsOfOneNameAreRefused) {
  Sharing sharing = three;
  sharing.groups = {{"en", {"en", "cs"}}, {"romance", {"fr"}}};
  const ModelConfig config = config_of({{1, Share::source}, {1, Share::source_group}}, {{1, Share::all}});
  sharing.tasks.push_back({"cs-en", "cs", "en"});
  try {
    (void)spec_of(config, sharing);
    FAIL() << "encoder.en is a language and a group";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::config);
    EXPECT_THAT(error.what(), HasSubstr("encoder.en"));
  }
}

}  // namespace
}  // namespace argosy::spec
