#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <stdexcept>

#include "interchange/peft.hpp"
#include "interchange/safetensors.hpp"
#include "interchange/source.hpp"
#include "model/stored_spec.hpp"
#include "support/refusal.hpp"
#include "unit/interchange/export_fixture.hpp"

namespace argosy::interchange {
namespace {

using spec::Share, testing::HasSubstr;

/// A model of three tasks: an encoder layer for each source and one for all, a decoder layer for each target.
class StoredTasks : public test::ExportFixture {
 protected:
  StoredTasks() {
    modular = translation;
    modular.encoder.layers.reset();
    modular.decoder.layers.reset();
    modular.encoder.stacks = {{1, Share::source}, {1, Share::all}};
    modular.decoder.stacks = {{1, Share::target}};
    plain = translation;
    plain.encoder.layers = 2;
    sharing.tasks = {{"en-fr", "en", "fr"}, {"en-de", "en", "de"}, {"fr-en", "fr", "en"}};
  }
  model::StoredModel open(const std::string& task, const std::string& name = {}) {
    if (saved.empty()) saved = save(modular);
    return open_source(context.get(), name.empty() ? saved.string() : name, false, task);
  }
  static std::vector<float> values(const model::StoredModel& model, const spec::Parameter& parameter) {
    std::vector<float> all(static_cast<std::size_t>(parameter.numel()));
    model.weights->read(parameter, 0, all);
    return all;
  }
  /// Expects the plain model whose layers have these names in the checkpoint.
  void expect_layers(const model::StoredModel& model, const std::string& encoder, const std::string& decoder) {
    const std::int64_t pieces = model.tokenizer.vocabulary().pieces;
    std::vector<std::string> wanted, got;
    for (const spec::Unit& unit : spec::ModelSpec(spec::resolve(plain, pieces)).units)
      for (const spec::Parameter& parameter : unit.parameters) wanted.push_back(parameter.name);
    for (const spec::Unit& unit : model.spec.units) {
      for (const spec::Parameter& parameter : unit.parameters) {
        got.push_back(parameter.name);
        std::string there = parameter.name;
        for (const auto& [side, component] : {std::pair{"encoder", encoder}, {"decoder", decoder}})
          if (there.starts_with(side + std::string("/layer_0/"))) there.replace(0, 7, component);
        EXPECT_EQ(values(model, parameter), rows(there, 1, 0, parameter.numel())) << there;
      }
    }
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(config::to_json(model.config), config::to_json(plain));
  }
  std::string refused(const std::string& task) {
    return test::refusal(Fault::usage, [&] { (void)open(task); });
  }
  std::string damage(const std::function<void(boost::json::object& model)>& change) {
    const Path folder_of = save(modular);
    test::edit_manifest(folder_of, [&](auto& document) { change(document["model"].as_object()); });
    return test::refusal(Fault::corrupt,
                         [&] { model::require_own_parameters(checkpoint::Reader(Files::system(), folder_of)); });
  }

  spec::ModelConfig modular, plain;
  Path saved;
};

TEST_F(StoredTasks, EachIsAPlainModelOfItsComponents) {
  expect_layers(open("en-fr"), "encoder.en", "decoder.fr");
  expect_layers(open("fr-en"), "encoder.fr", "decoder.en");
  EXPECT_EQ(open("en-fr").task, "en-fr");
}

TEST_F(StoredTasks, APairThatWasNotTrainedHasTheComponentsOfItsLanguages) {
  expect_layers(open("fr-de"), "encoder.fr", "decoder.de");
}

TEST_F(StoredTasks, WhatAModelDoesNotHaveIsNamedWithTheTasksThatItHas) {
  EXPECT_THAT(refused("de-en"), HasSubstr("the task de-en needs the component encoder.de, which the model does not "
                                          "have; its tasks are en-fr, en-de, fr-en"));
  EXPECT_THAT(refused("en-xx"), HasSubstr("en-xx is neither a task of the model nor a pair of its languages (de, en, "
                                          "fr); its tasks are en-fr, en-de, fr-en"));
  EXPECT_THAT(refused(""), HasSubstr("is a model of several tasks: en-fr, en-de, fr-en; give one with --task"));
  saved = save(translation);
  EXPECT_THAT(refused("en-fr"), HasSubstr("has no tasks; leave --task out"));
  write("hf", translation);
  EXPECT_THAT(test::refusal(Fault::usage, [&] { (void)open("en-fr", out.string()); }),
              HasSubstr("has no tasks; leave --task out"));
}

TEST_F(StoredTasks, TheirExportsAreThoseOfThePlainModel) {
  const model::StoredModel task = open("fr-de");
  out = folder / "of_task";
  (void)format_named("argosy").write(context.get(), task, out, {});
  const model::StoredModel alone = open("", out.string());
  expect_layers(alone, "encoder.fr", "decoder.de");
  const checkpoint::Reader reader{Files::system(), out};
  EXPECT_FALSE(reader.sections().model.contains("sharing"));
  EXPECT_THAT(std::string(reader.sections().history.back().at("change").as_string()), HasSubstr(", task fr-de"));
  for (const auto& [format, file] :
       {std::pair{"hf", "model.safetensors"}, {"hf", "config.json"}, {"ct2", "model.bin"}}) {
    std::vector<std::string> texts;
    for (const model::StoredModel* model : {&task, &alone}) {
      out = folder / fmt::format("{}-{}-{}", format, file, texts.size());
      (void)format_named(format).write(context.get(), *model, out, {});
      texts.push_back(read(file));
    }
    EXPECT_EQ(texts[0], texts[1]) << file;
  }
}

TEST_F(StoredTasks, AdaptersOfComponentsAreMergedOrWrittenAlone) {
  lora = spec::LoraConfig{.rank = 2, .alpha = 4, .targets = std::vector<std::string>{"encoder.en", "decoder"}};
  const model::StoredModel task = open("en-fr");
  const auto here = [&](const std::string& name) {
    for (const spec::Unit& unit : task.spec.units)
      for (const spec::Parameter& parameter : unit.parameters)
        if (parameter.name == name) return values(task, parameter);
    throw std::out_of_range(name);
  };
  for (const std::string layer : {"encoder.en/layer_0", "decoder.fr/layer_0"}) {
    const std::string matrix = layer + "/ffn/linear_1/";  // 8 rows, 12 columns
    std::vector<float> wanted = rows(matrix + "weight", 12, 0, 8);
    const std::vector<float> down = rows(matrix + "lora_A", 12, 0, 2), up = rows(matrix + "lora_B", 2, 0, 8);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      for (std::size_t k = 0; k < 2; ++k) wanted[i] += 2 * up[i / 12 * 2 + k] * down[k * 12 + i % 12];
    const std::vector<float> got = here(layer.substr(0, 7) + "/layer_0/ffn/linear_1/weight");
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i]))) << layer << ' ' << i;
  }
  EXPECT_EQ(here("encoder/layer_1/ffn/linear_1/weight"), rows("encoder/layer_1/ffn/linear_1/weight", 12, 0, 8));

  out = folder / "adapters";
  (void)format_named("peft").write(context.get(), open("fr-en"), out, {});
  const Safetensors alone(Files::system(), out, adapter_stem);
  EXPECT_EQ(alone.tensors().size(), 2U * (4 + 4 + 2)) << "those of the decoder layer";
  std::vector<float> down(24);
  alone.read("base_model.model.model.decoder.layers.0.fc2.lora_A.weight", 0, down);
  EXPECT_EQ(down, rows("decoder.en/layer_0/ffn/linear_1/lora_A", 12, 0, 2));
  // As the exported model of the task would have them.
  const spec::ModelSpec adapted =
      spec::with_adapters(open("fr-en").spec, {.rank = 2, .alpha = 4, .targets = "decoder/*"});
  EXPECT_NO_THROW((void)peft_adapters(Files::system(), out, adapted));

  lora->targets = "encoder.en";
  saved.clear();
  EXPECT_THAT(test::refusal(Fault::usage,
                            [&] { (void)format_named("peft").write(context.get(), open("fr-en"), folder / "no", {}); }),
              HasSubstr("no part of the task fr-en has adapters"));
}

TEST_F(StoredTasks, AdaptersOfOneModelAreNotTakenForThoseOfItsComponents) {
  lora = spec::LoraConfig{.rank = 2};
  write("peft", plain);
  EXPECT_THAT(test::refusal(Fault::config,
                            [&] {
                              const spec::ModelSpec tasks(spec::resolve(modular, 300), sharing);
                              (void)peft_adapters(Files::system(), out, spec::with_adapters(tasks, *lora));
                            }),
              HasSubstr("its adapters belong to a model of one task"));
}

TEST_F(StoredTasks, AreStoredWhereTheTasksDoNotShareAll) {
  const auto section = [&](const spec::ModelConfig& config) {
    return model::model_section(config, boost::json::value(Digest{}.hex()), 300, DType::f32, std::nullopt, sharing);
  };
  EXPECT_EQ(section(modular).at("sharing"), config::to_json(sharing));
  EXPECT_FALSE(section(plain).contains("sharing"));
  const checkpoint::Reader reader{Files::system(), save(modular)};
  EXPECT_EQ(model::stored_sharing(reader), sharing);
  EXPECT_EQ(model::stored_spec(reader, modular, 300).components.size(), 6U);
}

TEST_F(StoredTasks, ForgedOrMissingSectionsAreDamage) {
  using boost::json::object, boost::json::array;
  const auto in_sharing = [&](const std::function<void(object & sharing)>& change) {
    return damage([&](object& model) { change(model["sharing"].as_object()); });
  };
  const auto with_task = [&](const std::string& name, const std::string& source, const std::string& target) {
    return in_sharing([&](object& of) {
      of["tasks"].as_array().push_back(object{{"name", name}, {"source", source}, {"target", target}});
    });
  };
  const auto in_stack = [&](const char* key, const boost::json::value& value) {
    return damage([&](object& model) {
      model["config"].as_object()["encoder"].as_object()["stacks"].as_array()[0].as_object()[key] = value;
    });
  };
  EXPECT_THAT(damage([](object& model) { model.erase("sharing"); }),
              HasSubstr("expected the tasks that share its stacks, got no section sharing"));
  EXPECT_THAT(damage([](object& model) { model["sharing"] = "all"; }), HasSubstr("got"));
  EXPECT_THAT(in_sharing([](object& of) { of["tasks"] = array{}; }), HasSubstr("got a section sharing without tasks"));
  EXPECT_THAT(in_sharing([](object& of) { of["tasks"] = 3; }), HasSubstr("tasks must be a list"));
  EXPECT_THAT(in_sharing([](object& of) { of["more"] = 3; }), HasSubstr("more"));
  EXPECT_THAT(in_sharing([](object& of) { of["tasks"].as_array().pop_back(); }), HasSubstr("also "));
  EXPECT_THAT(with_task("en-fr", "en", "fr"), HasSubstr("a name that no other task has"));
  EXPECT_THAT(with_task("up", "../en", "fr"), HasSubstr("tasks.3.source"));
  EXPECT_THAT(with_task("", "en", "fr"), HasSubstr("tasks.3.name"));
  EXPECT_THAT(with_task("en-es", "en", "es"), HasSubstr("the parameter decoder.es/layer_0/"));
  EXPECT_THAT(in_sharing([](object& of) {
                of["groups"] = {{"a", array{"en"}}, {"b", array{"en"}}};
              }),
              HasSubstr("in no other group"));
  EXPECT_THAT(in_sharing([](object& of) {
                array many;
                for (int i = 0; i < 70'000; ++i)
                  many.push_back({{"name", fmt::format("t{}", i)}, {"source", "en"}, {"target", "fr"}});
                of["tasks"] = std::move(many);
              }),
              HasSubstr("at most 65536"));
  EXPECT_THAT(in_stack("share", "source_group"), HasSubstr("the task en-fr needs the group of the language en"));
  EXPECT_THAT(in_stack("share", "pair"), HasSubstr("the parameter encoder.en-fr/layer_0/"));
  EXPECT_THAT(in_stack("share", "nobody"), HasSubstr("nobody"));
  EXPECT_THAT(in_stack("layers", 4000), HasSubstr("the parameters of 8004 layers"));
  EXPECT_THAT(damage([](object& model) { model["lora"] = {{"rank", 2}}; }), HasSubstr("/lora_A, got none"));
  EXPECT_THAT(in_sharing([](object& of) {
                array many;
                for (int i = 0; i < 9'000; ++i) many.push_back(boost::json::string(fmt::format("l{}", i)));
                of["groups"] = {{"a", std::move(many)}};
              }),
              HasSubstr("at most 8192 languages"));
  saved = save(translation);
  test::edit_manifest(saved,
                      [&](auto& document) { document["model"].as_object()["sharing"] = config::to_json(sharing); });
  EXPECT_THAT(test::refusal(Fault::corrupt, [&] { (void)open(""); }), HasSubstr("no section sharing, since all is"));
}

}  // namespace
}  // namespace argosy::interchange
