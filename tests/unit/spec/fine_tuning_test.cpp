#include "spec/fine_tuning.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "support/refusal.hpp"
#include "support/small_model.hpp"

/// Which parameters are trained, and in which units they are.
namespace argosy::spec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Architecture tuned_shape(bool tied = true) {
  ModelConfig config =
      test::model_config({.width = 16, .ff = 32, .heads = 4, .encoder_layers = 1, .decoder_layers = 2});
  config.tie_embeddings = tied;
  return resolve(config, 100);
}

const Unit& tuned_unit(const ModelSpec& spec, const std::string& name) {
  for (const Unit& unit : spec.units)
    if (unit.name == name) return unit;
  throw std::out_of_range(name);
}

TEST(Lora, AddsAUnitOfAdaptersToEachBlockAndFreezesTheRest) {
  const ModelSpec spec = with_adapters(tuned_shape(), {.rank = 8, .alpha = 4});
  std::vector<std::string> trained;
  for (const Unit& unit : spec.units)
    if (!unit.frozen) trained.push_back(unit.name);
  EXPECT_THAT(trained, ElementsAre("encoder.0.adapters", "decoder.0.adapters", "decoder.1.adapters"));
  std::vector<std::string> names;
  for (const Parameter& parameter : tuned_unit(spec, "decoder.1.adapters").parameters) names.push_back(parameter.name);
  const std::string layer = "decoder/layer_1/";
  EXPECT_THAT(names, ElementsAre(layer + "self_attention/linear_0/lora_A", layer + "self_attention/linear_0/lora_B",
                                 layer + "self_attention/linear_1/lora_A", layer + "self_attention/linear_1/lora_B",
                                 layer + "attention/linear_0/lora_A", layer + "attention/linear_0/lora_B",
                                 layer + "attention/linear_1/lora_A", layer + "attention/linear_1/lora_B",
                                 layer + "attention/linear_2/lora_A", layer + "attention/linear_2/lora_B",
                                 layer + "ffn/linear_0/lora_A", layer + "ffn/linear_0/lora_B",
                                 layer + "ffn/linear_1/lora_A", layer + "ffn/linear_1/lora_B"));
  const Unit& unit = tuned_unit(spec, "decoder.1.adapters");
  const Parameter &down = unit.parameter(layer + "self_attention/linear_0/lora_A"),
                  &up = unit.parameter(layer + "self_attention/linear_0/lora_B");
  EXPECT_THAT(down.shape, ElementsAre(3 * 8, 16));
  EXPECT_THAT(up.shape, ElementsAre(3 * 16, 8));
  EXPECT_EQ(up.scale, 0.5);
  EXPECT_EQ(down.initial.uniform, 0.25);
  EXPECT_EQ(unit.matrices().size(), 2U * (3 + 1 + 1 + 2 + 1 + 1 + 1));
  for (const Visit& visit : spec.visits) {
    const bool block = visit.kind == VisitKind::encoder_block || visit.kind == VisitKind::decoder_block;
    ASSERT_EQ(visit.units.size(), block ? 2U : 1U) << visit.name;
    EXPECT_EQ(spec.units[visit.units.front()].name.find("adapters"), std::string::npos);
    if (block) {
      EXPECT_EQ(spec.units[visit.units.back()].name, visit.name + ".adapters");
    }
  }
  std::int64_t adapters = 0;
  for (const Unit& each : spec.units)
    for (const Parameter& parameter : each.parameters) adapters += parameter.is_adapter() ? parameter.numel() : 0;
  EXPECT_EQ(trained_count(spec).trained, adapters);
  EXPECT_EQ(trained_count(spec).all, trained_count(tuned_shape()).all + adapters);
}

TEST(Lora, ScalesByRankOrItsRoot) {
  EXPECT_EQ(adapter_scale({.rank = 64}), 1);
  EXPECT_EQ(adapter_scale({.rank = 64, .alpha = 16}), 0.25);
  EXPECT_EQ(adapter_scale({.rank = 64, .rslora = true}), 2);
  EXPECT_NEAR(adapter_scale({.rank = 512, .rslora = true}), 0.7071, 1e-4);
  EXPECT_EQ(adapter_scale({.rank = 16, .alpha = 8, .rslora = true}), 2);
}

TEST(Lora, DropsPartsOfWhatTheFirstMatrixReads) {
  for (const Unit& unit : with_adapters(tuned_shape(), {.rank = 2, .dropout = 0.25}).units)
    for (const Parameter& parameter : unit.parameters)
      EXPECT_EQ(parameter.dropout, parameter.role == Role::adapter_down ? 0.25 : 0) << parameter.name;
  for (const double dropout : {-0.1, 1.0}) {
    config::Problems problems;
    validate(LoraConfig{.dropout = dropout}, problems);
    EXPECT_EQ(problems.all().size(), 1U);
  }
}

TEST(Lora, TargetsArePatternsOfLayersAndTheirParts) {
  const auto adapted = [](std::vector<std::string> targets) {
    std::vector<std::string> names;
    for (const Unit& unit : with_adapters(tuned_shape(), {.rank = 2, .targets = std::move(targets)}).units)
      for (const Parameter& parameter : unit.parameters)
        if (parameter.role == Role::adapter_up)
          names.push_back(fmt::format("{} {}", parameter.name, parameter.parts.size()));
    return names;
  };
  EXPECT_THAT(adapted({"decoder/layer_1/*/query", "encoder/*/linear_1"}),
              ElementsAre("encoder/layer_0/self_attention/linear_1/lora_B 0", "encoder/layer_0/ffn/linear_1/lora_B 0",
                          "decoder/layer_1/self_attention/linear_0/lora_B 1"));
  EXPECT_THAT(adapted({"encoder/*/linear_0"}),
              ElementsAre("encoder/layer_0/self_attention/linear_0/lora_B 3", "encoder/layer_0/ffn/linear_0/lora_B 0"));
  EXPECT_THAT(test::refusal(Fault::config,
                            [&] {
                              (void)adapted({"query", "q_proj"});
                            }),
              HasSubstr("\"q_proj\", which matches none"));
  EXPECT_THAT(test::refusal(Fault::config, [&] { (void)adapted({"embeddings"}); }), HasSubstr("lora.train_embeddings"));
}

TEST(Lora, ARouteHasTheAdaptersOfItsComponents) {
  Architecture shape = tuned_shape();
  shape.decoder_stacks = {{1, Share::target}, {1, Share::all}};
  const ModelSpec whole = with_adapters(ModelSpec(shape, {.tasks = {{"en-fr", "en", "fr"}, {"en-de", "en", "de"}}}),
                                        {.rank = 2, .targets = std::vector<std::string>{"decoder.de", "decoder.all"}});
  const Task task{"en-de", "en", "de"};
  for (const RouteModel& route : {model_of_task(whole, task), model_of_route(whole, whole.route_of.at("en-de"))}) {
    const ModelSpec plain = with_adapters(as_plain(shape), {.rank = 2, .targets = "decoder"});
    std::vector<std::string> names, wanted;
    for (const auto& [spec, all] : {std::pair{&route.spec, &names}, {&plain, &wanted}}) {
      for (const Unit& unit : spec->units)
        for (const Parameter& parameter : unit.parameters) all->push_back(unit.name + " " + parameter.name);
      for (const Visit& visit : spec->visits) all->push_back(fmt::format("{} {}", visit.name, visit.units.size()));
    }
    EXPECT_EQ(names, wanted);
    EXPECT_EQ(route.stored.at("decoder/layer_0/ffn/linear_0/lora_A"), "decoder.de/layer_0/ffn/linear_0/lora_A");
    EXPECT_EQ(route.stored.at("decoder/layer_1/ffn/linear_0/lora_B"), "decoder/layer_1/ffn/linear_0/lora_B");
  }
  EXPECT_FALSE(
      model_of_route(whole, whole.route_of.at("en-fr")).stored.contains("decoder/layer_0/ffn/linear_0/lora_A"));
  EXPECT_THAT(test::refusal(
                  Fault::config,
                  [&] { (void)with_adapters(ModelSpec(shape, whole.sharing), {.rank = 2, .targets = "decoder.cs"}); }),
              HasSubstr("or parts (encoder, decoder, decoder.fr, decoder.de)"));
}

TEST(Lora, MayTrainEmbeddingsInFull) {
  for (const bool tied : {true, false}) {
    const ModelSpec spec = with_adapters(tuned_shape(tied), {.rank = 2, .train_embeddings = true});
    for (const Unit& unit : spec.units) {
      for (const Parameter& parameter : unit.parameters)
        EXPECT_EQ(!unit.frozen, parameter.is_by_id() || parameter.is_adapter()) << parameter.name;
    }
  }
}

TEST(Lora, PartsSayWhichRowsBelongTogether) {
  const ModelSpec spec =
      with_adapters(tuned_shape(), {.rank = 2, .targets = std::vector<std::string>{"query", "value"}});
  const std::string layer = "decoder/layer_0/self_attention/linear_0/";
  const Unit& unit = tuned_unit(spec, "decoder.0.adapters");
  const std::vector<AdapterPart> parts =
      adapter_parts(tuned_unit(spec, "decoder.0").parameter(layer + "weight"), unit.parameter(layer + "lora_A"),
                    unit.parameter(layer + "lora_B"));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(std::tuple(parts[0].begin, parts[0].rows, parts[0].down, parts[0].rank, parts[0].up),
            std::tuple(0, 16, 0, 2, 0));
  EXPECT_EQ(std::tuple(parts[1].begin, parts[1].rows, parts[1].down, parts[1].rank, parts[1].up),
            std::tuple(32, 16, 2, 2, 16));
}

TEST(Freeze, SplitsUnitsOfWhichAPartIsFrozen) {
  const std::vector<std::string> patterns{"encoder/*", "decoder/embeddings/weight",
                                          "decoder/layer_0/ffn/linear_1/weight"};
  const ModelSpec spec = with_frozen(tuned_shape(), patterns);
  EXPECT_TRUE(tuned_unit(spec, "encoder.0").frozen);
  EXPECT_FALSE(tuned_unit(spec, "embedding").frozen);
  EXPECT_EQ(tuned_unit(spec, "embedding.frozen").parameters.size(), 1U);
  EXPECT_EQ(tuned_unit(spec, "decoder.0.frozen").parameters.front().name, "decoder/layer_0/ffn/linear_1/weight");
  EXPECT_FALSE(tuned_unit(spec, "decoder.1").frozen);
  const auto units_of = [&](const std::string& visit) {
    std::vector<std::string> names;
    for (const Visit& each : spec.visits)
      if (each.name == visit)
        for (const std::size_t unit : each.units) names.push_back(spec.units[unit].name);
    return names;
  };
  EXPECT_THAT(units_of("source"), ElementsAre("embedding.frozen", "embedding")) << "the larger one first";
  EXPECT_THAT(units_of("head"), ElementsAre("embedding.frozen", "embedding"));
  EXPECT_THAT(units_of("decoder.0"), ElementsAre("decoder.0", "decoder.0.frozen"));
  EXPECT_THAT(units_of("decoder.1"), ElementsAre("decoder.1"));
}

TEST(Freeze, RefusesPatternsOfNothingAndOfEverything) {
  const auto freezing = [](std::string pattern) {
    return test::refusal(Fault::config, [&] { (void)with_frozen(tuned_shape(), std::vector{std::move(pattern)}); });
  };
  EXPECT_THAT(freezing("encoder.0"), HasSubstr("\"encoder.0\", which matches none"));
  EXPECT_THAT(freezing("*"), HasSubstr("patterns that match all of them"));
}

}  // namespace
}  // namespace argosy::spec
