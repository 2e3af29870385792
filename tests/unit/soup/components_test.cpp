#include <gmock/gmock.h>

#include "core/hash.hpp"
#include "data/tokenizer_pack.hpp"
#include "soup/inputs.hpp"
#include "soup/soup.hpp"
#include "support/forged_numbers.hpp"
#include "support/modular_toys.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"

namespace argosy::soup {
namespace {

using spec::Share, testing::HasSubstr;

/// Two checkpoints of models with different tasks, and a soup that must not be made of them.
class ComponentRefusals : public testing::Test {
 protected:
  ComponentRefusals() {
    config.components = true;
    config.output = (folder / "soup").string();
    take(test::sharing_of({"en-fr", "en-de"}), test::sharing_of({"fr-en", "en-fr"}));
  }
  void take(const spec::Sharing& first, const spec::Sharing& second,
            const spec::ModelConfig& of_first = test::modular_config(),
            const spec::ModelConfig& of_second = test::modular_config()) {
    config.inputs = {save(first, of_first), save(second, of_second)};
  }
  std::string save(const spec::Sharing& sharing, const spec::ModelConfig& model = test::modular_config()) {
    ++step;
    return test::save_modular(context, folder / "run", step, sharing, model);
  }
  /// A checkpoint of these tasks with a tokenizer for each language.
  std::string save_with(const std::vector<std::string>& tasks, const data::TokenizerFiles& tokenizers) {
    const spec::Sharing sharing = test::sharing_of(tasks);
    checkpoint::Sections sections = test::sections_of(test::modular_config(), sharing);
    boost::json::object& digests = sections.model["tokenizer_digest"].emplace_object();
    for (const auto& [language, file] : tokenizers) digests[language] = digest_of(as_bytes(file)).hex();
    test::Toy toy = test::own_toy(context, test::units_of(test::modular_config(), sharing));
    ++step;
    return test::save_step(context, folder / "run", step, toy.fill(static_cast<std::uint64_t>(step)).states(), sections,
                           {{"tokenizer.model", data::pack_several({.files = tokenizers})}});
  }
  std::string refused(Fault fault, const Evaluator& evaluator = {}) {
    const std::string said = test::refusal(fault, [&] { make_soup(context.get(), config, evaluator); });
    for (const std::string& name : Files::system().list(folder.path()))
      EXPECT_EQ(name.find("soup"), std::string::npos) << name;
    return said;
  }

  Os os;
  test::TempFolder folder;
  test::TestContext context{os, test::world()};
  std::int64_t step = 0;
  SoupConfig config;
};

TEST_F(ComponentRefusals, OtherTasksNeedTheOption) {
  config.components = false;
  EXPECT_THAT(refused(Fault::data), HasSubstr("has other tasks than the first input (added: fr-en; missing: en-de); "
                                              "give --components"));
  spec::Sharing grouped = test::sharing_of({"en-fr"});
  grouped.groups = {{"romance", {"fr"}}};
  take(test::sharing_of({"en-fr"}), grouped);
  EXPECT_THAT(refused(Fault::data), HasSubstr("has other groups of languages than the first input"));
}

TEST_F(ComponentRefusals, WhatDoesNotGoWithTheOptionIsNamed) {
  const Evaluator evaluator{.identity = "e", .evaluate = [](const auto&) { return ValidationLoss{1}; }};
  EXPECT_THAT(refused(Fault::usage, evaluator), HasSubstr("--components cannot be combined with --validate"));
  config.moments = Moments::avg;
  EXPECT_THAT(refused(Fault::usage), HasSubstr("--components cannot be combined with --optimizer"));
  config.moments = Moments::drop;
  config.recipe = {.type = RecipeType::weighted, .weights = {1, 2}, .normalize = false};
  EXPECT_THAT(refused(Fault::usage), HasSubstr("--components cannot be combined with --no-normalize"));
  config.recipe = {.type = RecipeType::weighted, .weights = {0, 1}};
  EXPECT_THAT(refused(Fault::usage), HasSubstr("the weights of the inputs that have decoder.de.0 add up to 0"));
}

TEST_F(ComponentRefusals, ModelsThatAreNotPartsOfOneAreNamed) {
  spec::ModelConfig other = test::modular_config();
  other.norm_position = spec::NormPosition::pre;
  take(test::sharing_of({"en-fr"}), test::sharing_of({"en-de"}), test::modular_config(), other);
  EXPECT_THAT(refused(Fault::data), HasSubstr("has another model configuration than the first input"));

  const spec::ModelConfig plain =
      test::model_config({.width = 8, .ff = 12, .heads = 2, .encoder_layers = 1, .decoder_layers = 1});
  take({}, {}, plain, plain);
  EXPECT_THAT(refused(Fault::data), HasSubstr("has no tasks, and --components is for models of several"));

  spec::Sharing swapped{.tasks = {{"en-fr", "fr", "en"}}, .groups = {}};
  take(test::sharing_of({"en-fr"}), swapped);
  EXPECT_THAT(refused(Fault::data), HasSubstr("has another task en-fr than the inputs before it"));

  spec::Sharing first = test::sharing_of({"en-fr"}), second = test::sharing_of({"de-fr"});
  first.groups = {{"x", {"en", "fr"}}};
  second.groups = {{"y", {"fr", "de"}}};
  take(first, second);
  EXPECT_THAT(refused(Fault::data), HasSubstr("has the language fr in the group y, an input before it in x"));

  spec::ModelConfig by_group = test::modular_config();
  by_group.encoder.stacks[1].share = Share::source_group;
  first.groups = {{"x", {"en"}}};
  second.groups = {{"en", {"de"}}};
  take(first, second, by_group, by_group);
  EXPECT_THAT(refused(Fault::data), HasSubstr("tasks that no single model can have"));
}

TEST_F(ComponentRefusals, TwoTokenizersOfOneLanguageAreRefusedThoughBothFitTheFirst) {
  config.inputs = {save_with({"en-fr"}, {{"en", "e"}, {"fr", "f"}}), save_with({"en-de"}, {{"en", "e"}, {"de", "d"}}),
                   save_with({"de-en"}, {{"en", "e"}, {"de", "other"}})};
  EXPECT_THAT(refused(Fault::data), HasSubstr("has another tokenizer of the language de than an input before it"));
  config.inputs[2] = save_with({"de-en"}, {{"en", "e"}, {"de", "d"}});
  make_soup(context.get(), config);
  const checkpoint::Reader soup{Files::system(), config.output};
  EXPECT_EQ(data::unpack_several(soup.attachment("tokenizer.model"), "").files,
            (data::TokenizerFiles{{"de", "d"}, {"en", "e"}, {"fr", "f"}}));
}

TEST_F(ComponentRefusals, OtherShapesBehindAnEqualDigestAreRefused) {
  spec::ModelConfig wide = test::modular_config();
  wide.width = 16;
  take(test::sharing_of({"en-fr"}), test::sharing_of({"en-de"}), test::modular_config(), wide);
  const auto digest = checkpoint::Reader(Files::system(), config.inputs[0]).sections().model.at("config_digest");
  test::edit_manifest(config.inputs[1],
                      [&](auto& document) { document["model"].as_object()["config_digest"] = digest; });
  EXPECT_THAT(refused(Fault::data), HasSubstr("has other shapes in embedding than the model of all tasks"));
}

using ForgedComponents = ComponentRefusals;

TEST_F(ForgedComponents, NumbersAreRefusedOrHarmless) {
  test::forge_numbers(config.inputs[1], [&] { static_cast<void>(open_inputs(context.get(), config)); });
}

}  // namespace
}  // namespace argosy::soup
