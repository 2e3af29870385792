#include "interchange/formats.hpp"

#include <gmock/gmock.h>

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
  translation.heads = 1 << 15;
  translation.kv_heads = 1;
  translation.head_size = 2;
  EXPECT_THAT(formats_for(spec::resolve(translation, 8000)), IsEmpty()) << "CTranslate2 counts to 32767";
}

}  // namespace
}  // namespace argosy::interchange
