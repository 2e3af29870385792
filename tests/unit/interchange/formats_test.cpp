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
      [](auto& c) { c.encoder.position = spec::Position::alibi; }};
  const std::function<void(spec::ModelConfig&)> of_both[] = {
      [](auto& c) { c.encoder.position = spec::Position::learned; }, [](auto& c) { c.tie_inputs = false; },
      [](auto& c) { c.tie_embeddings = c.tie_inputs = false; },
      [](auto& c) {
        c.norm = spec::Norm::rms_norm;
        c.norm_position = spec::NormPosition::pre;
        c.activation = spec::Activation::geglu;
        c.bias = c.tie_embeddings = false;
        c.tie_inputs = true;
        c.encoder.position = c.decoder.position = spec::Position::t5;
      },
      [](auto& c) {
        c.norm_position = spec::NormPosition::pre;
        c.encoder.position = c.decoder.position = spec::Position::sinusoidal_fairseq;
        c.output_bias = false;
        c.token_ids = spec::TokenIds{.eos = 2, .unk = 3, .bos = 0, .pad = 1, .start = 2};
      }};
  // Everything else of a translation model is CTranslate2's alone.
  const std::function<void(spec::ModelConfig&)> of_ctranslate2[] = {
      [](auto& c) { c.norm_epsilon = 1e-6; },
      [](auto& c) { c.decoder.position = spec::Position::sinusoidal_fairseq; },
      [](auto& c) { c.decoder.position = spec::Position::alibi; },
      [](auto& c) { c.encoder.position = spec::Position::t5; },
      [](auto& c) { c.decoder.position = spec::Position::none; },
      [](auto& c) { c.activation = spec::Activation::geglu; },
      [](auto& c) { c.embedding_scale = false; },
      [](auto& c) { c.output_bias = false; },
      [](auto& c) { c.token_ids = spec::TokenIds{.eos = 0}; },  // without pad
      [](auto& c) {
        c.tie_embeddings = false;
        c.tie_inputs = true;
      },
      [](auto& c) {
        c.bias = false;
        c.qkv_bias = true;
      }};
  const auto expect = [&](const auto& changes, const auto& formats) {
    for (const auto& change : changes) {
      spec::ModelConfig other = translation;
      change(other);
      EXPECT_THAT(formats_for(spec::resolve(other, 8000)), formats);
    }
  };
  expect(of_neither, IsEmpty());
  expect(of_both, ElementsAre("ct2", "hf"));
  expect(of_ctranslate2, ElementsAre("ct2"));
  spec::ModelConfig language = config;
  language.norm_epsilon = 1e-6;
  EXPECT_THAT(formats_for(spec::resolve(language, 32000)), ElementsAre("ct2", "hf"));
  const std::function<void(spec::ModelConfig&)> of_no_language[] = {
      [](auto& c) { c.qkv_bias = true; },  // and a window
      [](auto& c) { c.embedding_scale = true; }, [](auto& c) { c.decoder.position = spec::Position::alibi; }};
  for (const auto& change : of_no_language) {
    spec::ModelConfig other = config;
    change(other);
    EXPECT_THAT(formats_for(spec::resolve(other, 32000)), ElementsAre("ct2"));
  }
  const std::function<void(spec::ModelConfig&)> without_window[] = {[](auto& c) { c.rope_scaling.emplace(); },
                                                                    [](auto& c) { c.qkv_bias = true; }};
  language.preset = spec::Preset::lm_small;  // without a window
  for (const auto& change : without_window) {
    spec::ModelConfig other = language;
    change(other);
    EXPECT_THAT(formats_for(spec::resolve(other, 32000)), ElementsAre("ct2", "hf"));
  }
  language.prefix_lm = true;
  EXPECT_THAT(formats_for(spec::resolve(language, 32000)), IsEmpty()) << "all others read prompts causally";
  translation.heads = 1 << 15;
  translation.kv_heads = 1;
  translation.head_size = 2;
  EXPECT_THAT(formats_for(spec::resolve(translation, 8000)), IsEmpty()) << "CTranslate2 counts to 32767";
}

}  // namespace
}  // namespace argosy::interchange
