#include "interchange/formats.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <set>

#include "support/refusal.hpp"

namespace argosy::interchange {
namespace {

using testing::ElementsAre, testing::IsEmpty;

TEST(Formats, HaveNamesOfTheirOwnAndDescriptions) {
  std::set<std::string_view> names;
  for (const Format& format : formats()) {
    EXPECT_TRUE(names.insert(format.name).second) << format.name;
    EXPECT_FALSE(format.description.empty()) << format.name;
  }
  EXPECT_TRUE(names.contains("ct2"));
}

TEST(Formats, AreFoundByNameAndListedForAnyOther) {
  for (const Format& format : formats()) EXPECT_EQ(format_named(format.name).name, format.name);
  const std::string said = test::refusal(Fault::usage, [] { (void)format_named("ct3"); });
  EXPECT_THAT(said, testing::HasSubstr("ct3"));
  for (const Format& format : formats()) EXPECT_THAT(said, testing::HasSubstr(std::string(format.name)));
}

TEST(Formats, AreNamedForEveryModelTheyCanHoldAndForNoOther) {
  spec::ModelConfig config;
  config.type = spec::ModelType::decoder;
  config.preset = spec::Preset::mistral_7b;
  EXPECT_THAT(formats_for(spec::resolve(config, 32000)), ElementsAre("ct2", "hf"));
  spec::ModelConfig translation;
  translation.preset = spec::Preset::mt_small;
  for (const auto position : {spec::NormPosition::pre, spec::NormPosition::post}) {
    translation.norm_position = position;
    EXPECT_THAT(formats_for(spec::resolve(translation, 8000)), ElementsAre("ct2", "hf"));
  }
  const std::function<void(spec::ModelConfig&)> of_neither[] = {
      [](auto& c) { c.encoder.position = spec::Position::learned; },
      [](auto& c) { c.decoder.position = spec::Position::sinusoidal_fairseq; },
      [](auto& c) { c.encoder.position = spec::Position::alibi; },
      [](auto& c) { c.encoder.position = spec::Position::t5; },
      [](auto& c) { c.decoder.position = spec::Position::none; },
      [](auto& c) { c.activation = spec::Activation::geglu; },
      [](auto& c) { c.embedding_scale = false; },
      [](auto& c) {
        c.bias = false;
        c.qkv_bias = true;
      }};
  for (const auto& change : of_neither) {
    spec::ModelConfig other = translation;
    change(other);
    EXPECT_THAT(formats_for(spec::resolve(other, 8000)), IsEmpty());
  }
  spec::ModelConfig epsilon = translation;
  epsilon.norm_epsilon = 1e-6;
  EXPECT_THAT(formats_for(spec::resolve(epsilon, 8000)), ElementsAre("ct2"));
  spec::ModelConfig language = config;
  language.norm_epsilon = 1e-6;
  EXPECT_THAT(formats_for(spec::resolve(language, 32000)), ElementsAre("ct2", "hf"));
  const std::function<void(spec::ModelConfig&)> of_no_language[] = {
      [](auto& c) { c.qkv_bias = true; },  // and a window
      [](auto& c) { c.embedding_scale = true; }, [](auto& c) { c.decoder.position = spec::Position::alibi; }};
  for (const auto& change : of_no_language) {
    spec::ModelConfig other = config;
    change(other);
    EXPECT_THAT(formats_for(spec::resolve(other, 32000)), IsEmpty());
  }
  const std::function<void(spec::ModelConfig&)> of_hugging_face[] = {[](auto& c) { c.rope_scaling.emplace(); },
                                                                     [](auto& c) { c.qkv_bias = true; }};
  language.preset = spec::Preset::lm_small;  // without a window
  for (const auto& change : of_hugging_face) {
    spec::ModelConfig other = language;
    change(other);
    EXPECT_THAT(formats_for(spec::resolve(other, 32000)), ElementsAre("hf"));
  }
  translation.heads = 1 << 15;
  translation.kv_heads = 1;
  translation.head_size = 2;
  EXPECT_THAT(formats_for(spec::resolve(translation, 8000)), IsEmpty()) << "CTranslate2 counts to 32767";
}

}  // namespace
}  // namespace argosy::interchange
