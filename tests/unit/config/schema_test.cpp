#include <gmock/gmock.h>

#include <boost/json/parse.hpp>

#include "config/describe.hpp"
#include "sample_config.hpp"

namespace argosy::test {
namespace {

using boost::json::parse;

TEST(Schema, DescribesEveryKindOfMember) {
  const auto schema = config::schema_of<SampleConfig>();
  EXPECT_EQ(schema.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema.at("additionalProperties"), false);
  const auto& of = schema.at("properties");
  EXPECT_EQ(of.at("dry"), parse(R"({"type": "boolean", "default": false})"));
  EXPECT_EQ(of.at("workers"), parse(R"({"type": "integer", "minimum": 0, "maximum": 65535, "default": 2})"));
  EXPECT_EQ(of.at("seed"), parse(R"({"type": "integer", "default": 1})"));
  EXPECT_EQ(of.at("run_dir"), parse(R"({"type": "string", "default": "runs/x"})"));
  EXPECT_EQ(of.at("shares"), parse(R"({"type": "object", "additionalProperties": {"type": "number"}, "default": {}})"));
  EXPECT_EQ(of.at("corpora").at("items").at("properties").at("languages").at("items"), parse(R"({"type": "string"})"));
  EXPECT_EQ(of.at("optimizer").at("properties").at("steps"),
            parse(R"({"anyOf": [{"type": "integer"}, {"enum": [null, "auto"]}], "default": null})"));
  const auto& schedule = of.at("schedule").at("properties");
  EXPECT_EQ(schedule.at("style"), parse(R"({"enum": ["cosine", "linear_warmup", "constant"], "default": "cosine",
                                           "description": "shape of the curve after the warm-up"})"));
  EXPECT_EQ(schedule.at("warmup").at("default"), 4000);
  EXPECT_EQ(schedule.at("length").at("anyOf").at(1), parse(R"({"enum": [null, "auto"]})"));
}

TEST(Schema, NamesKeysWithoutText) {
  EXPECT_EQ(config::keys_without_text<ScheduleConfig>(), std::vector<std::string>{"length"});
  EXPECT_THAT(config::keys_without_text<SampleConfig>(),
              testing::IsSupersetOf({"run_dir", "schedule", "schedule.length", "corpora.0.name", "shares"}));
}

TEST(Schema, ListsAllKeys) {
  EXPECT_EQ(config::keys_of<CorpusConfig>(), (std::vector<std::string>{"name", "languages", "weight", "source"}));
  EXPECT_THAT(config::keys_of<SampleConfig>(),
              testing::IsSupersetOf({"optimizer", "optimizer.beta1", "corpora.0.weight"}));
}

}  // namespace
}  // namespace argosy::test
