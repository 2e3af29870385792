#include <gmock/gmock.h>

#include "config/describe.hpp"
#include "sample_config.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

SampleConfig read(std::string_view text) {
  return config::from_document<SampleConfig>(config::Document::parse(text, "mt.json"));
}

std::string refusal(std::string_view text) {
  SCOPED_TRACE(text);
  return test::refusal(Fault::config, [&] { (void)read(text); });
}

TEST(Reader, FillsEveryKindOfMember) {
  const SampleConfig c = read(R"({
    "run_dir": "/tmp/r", "dry": true, "workers": 65535, "seed": -5,
    "schedule": {"style": "linear_warmup", "lr": 3, "warmup": "8ku", "length": "2Mt"},
    "optimizer": {"max_grad_norm": 0.5},
    "corpora": [{"name": "a", "languages": ["fi", "en"], "weight": 2.5}, {"name": "b"}],
    "shares": {"x": 1, "y": 0.25},
  } // a comment and a trailing comma)");
  EXPECT_EQ(c.run_dir, "/tmp/r");
  EXPECT_TRUE(c.dry);
  EXPECT_EQ(std::tuple(c.workers, c.seed, c.schedule.lr), std::tuple(65535, -5, 3.0));
  EXPECT_EQ(c.schedule.style, Style::linear_warmup);
  EXPECT_EQ(c.schedule.warmup, (config::Period{.count = 8000}));
  EXPECT_EQ(c.schedule.length, (config::Period{.count = 2e6, .unit = config::Period::Unit::tgt_token}));
  EXPECT_EQ(c.optimizer.max_grad_norm, 0.5);
  ASSERT_EQ(c.corpora.size(), 2U);
  EXPECT_EQ(c.corpora[0].languages, (std::vector<std::string>{"fi", "en"}));
  EXPECT_EQ(c.corpora[0].weight, 2.5F);
  EXPECT_EQ(c.corpora[1].weight, 1.0F);
  EXPECT_EQ(c.shares, (std::map<std::string, double>{{"x", 1}, {"y", 0.25}}));
}

TEST(Reader, KeepsDefaultsOfAbsentKeys) {
  const SampleConfig c = read("{}");
  EXPECT_EQ(c.run_dir, "runs/x");
  EXPECT_EQ(std::tuple(c.workers, c.optimizer.beta1), std::tuple(2, 0.9));
  EXPECT_FALSE(c.optimizer.max_grad_norm.has_value());
}

TEST(Reader, TellsAutoFromAbsent) {
  const auto steps = [](const std::string& value) {
    return read(R"({"optimizer": {"steps": )" + value + "}}").optimizer.steps;
  };
  EXPECT_TRUE(steps(R"("auto")").is_auto);
  EXPECT_FALSE(steps(R"("auto")").has_value());
  EXPECT_EQ(steps("7"), 7);
  EXPECT_FALSE(steps("7").is_auto);
  EXPECT_FALSE(steps("null").is_auto || steps("null").has_value());
  for (const char* text : {R"("auto")", "7", "null"})
    EXPECT_EQ(
        config::text_of(
            config::to_json(read(fmt::format(R"({{"optimizer": {{"steps": {}}}}})", text))).at("optimizer").at("steps"),
            false),
        text);
  config::OrAuto<std::int64_t> number = steps(R"("auto")");
  number = 3;
  EXPECT_FALSE(number.is_auto);
  EXPECT_THAT(refusal(R"({"optimizer": {"steps": "many"}})"), HasSubstr("optimizer.steps must be an integer, got"));
}

TEST(Reader, TakesAStringOrAListOfThem) {
  const auto read_source = [](const std::string& source) {
    return read(R"({"corpora": [{"name": "a", "source": )" + source + "}]}");
  };
  EXPECT_EQ(read_source(R"("a.en")").corpora[0].source.items, (std::vector<std::string>{"a.en"}));
  EXPECT_EQ(read_source(R"(["a", "b"])").corpora[0].source.items, (std::vector<std::string>{"a", "b"}));
  for (const char* text : {R"("a.en")", R"(["a","b"])", "[]"})
    EXPECT_EQ(config::text_of(config::to_json(read_source(text)).at("corpora").at(0).at("source"), false), text);
  EXPECT_THAT(refusal(R"({"corpora": [{"name": "a", "source": 3}]})"),
              HasSubstr("corpora.0.source must be a string or a list of strings, got 3"));
  EXPECT_THAT(refusal(R"({"corpora": [{"name": "a", "source": ["x", 3]}]})"),
              HasSubstr("corpora.0.source.1 must be a string, got 3"));
}

TEST(Reader, TakesNullAndAutoAsAbsent) {
  EXPECT_FALSE(read(R"({"optimizer": {"max_grad_norm": null}})").optimizer.max_grad_norm.has_value());
  EXPECT_FALSE(read(R"({"optimizer": {"max_grad_norm": "auto"}})").optimizer.max_grad_norm.has_value());
  EXPECT_THAT(refusal(R"({"optimizer": {"beta1": "auto"}})"), HasSubstr("must be a number, got \"auto\""));
}

TEST(Reader, NamesTheKeysAndEnumeratorsThereAre) {
  const std::pair<const char*, const char*> sentences[] = {
      {"{\n  \"optimizer\": {\n    \"max_grad_nrom\": 1.0\n  }\n}",
       "mt.json:3: unknown key optimizer.max_grad_nrom; did you mean optimizer.max_grad_norm?"},
      {R"({"optimizer": {"clip_grad": 1}})",
       "mt.json:1: unknown key optimizer.clip_grad; Argosy calls it optimizer.max_grad_norm"},
      {R"({"train_iters": 1})", "mt.json:1: unknown key train_iters; Argosy calls it schedule.length"},
      {R"({"beta1": 0.5})", "mt.json:1: unknown key beta1; did you mean optimizer.beta1?"},
      {R"({"optimizer": {"lr": 0.5}})", "mt.json:1: unknown key optimizer.lr; did you mean schedule.lr?"},
      {R"({"optimizer": {"zzzzzz": 1}})",
       "mt.json:1: unknown key optimizer.zzzzzz; the keys at this place are max_grad_norm, beta1, steps"},
      {"{\"schedule\":\n{\"style\": \"cosin\"}}",
       "mt.json:2: schedule.style must be one of cosine, linear_warmup, constant, got \"cosin\"; did you mean cosine?"},
      {R"({"schedule": {"style": 3}})",
       "mt.json:1: schedule.style must be one of cosine, linear_warmup, constant, got 3"}};
  for (const auto& [text, sentence] : sentences) EXPECT_EQ(refusal(text), sentence);
}

TEST(Reader, RefusesWrongTypesAndValuesOutOfRange) {
  const std::pair<const char*, const char*> words[] = {
      {R"({"dry": 1})", "mt.json:1: dry must be true or false, got 1"},
      {R"({"run_dir": 1})", "a path (a string), got 1"},
      {R"({"corpora": {}})", "must be a list, got {}"},
      {R"({"corpora": [3]})", "mt.json:1: corpora.0 must be an object, got 3"},
      {R"({"corpora": [{"name": "a"}, {"name": 5}]})", "corpora.1.name must be a string"},
      {R"({"shares": {"x": "y"}})", "mt.json:1: shares.x must be a number, got \"y\""},
      {R"({"optimizer": null})", "must be an object, got null"},
      {"[]", "must be an object, got []"},
      {R"({"schedule": {"warmup": "8x"}})", "must be a period"},
      {R"({"schedule": {"warmup": "8x"}})", "got \"8x\""},
      {R"({"workers": 65536})", "must be an integer from 0 to 65535, got 65536"},
      {R"({"workers": -1})", "got -1"},
      {R"({"workers": 1.5})", "got 1.5"},
      {R"({"seed": 9223372036854775808})", "must be an integer, got 9223372036854775808"},
      {R"({"corpora": [{"name": "a", "weight": 1e39}]})", "must be a number of at most 3.4e+38, got 1e+39"},
      {R"({"schedule": {"lr": 1e400}})", "must be a number of at most 1.8e+308"},
      {R"({"seed": 1e400})", "must be an integer"},
      {"{\"schedule\": {\n\"lr\": -1}}", "mt.json:2: schedule.lr must be a learning rate above 0, got -1"},
      {R"({"corpora": [{"name": "a"}, {}]})", "mt.json:1: corpora.1.name must be a name, got none"}};
  for (const auto& [text, wanted] : words) EXPECT_THAT(refusal(text), HasSubstr(wanted));
  EXPECT_EQ(read(R"({"seed": 4e5})").seed, 400000);
  EXPECT_EQ(read(R"({"seed": -9223372036854775808})").seed, std::numeric_limits<std::int64_t>::min());
}

TEST(Reader, ShortensLongValues) { EXPECT_LT(refusal("{\"dry\": \"" + std::string(1000, 'a') + "\"}").size(), 200U); }

TEST(Reader, TellsAllProblemsAtOnce) {
  const std::string text =
      refusal("{\"workers\": \"two\",\n\"schedule\": {\"lr\": 0, \"stile\": 1},\n\"corpora\": [{}]}");
  EXPECT_TRUE(says(text, "mt.json has 4 problems:", "mt.json:1: workers", "mt.json:2: schedule.lr",
                   "mt.json:2: unknown key schedule.stile; did you mean schedule.style?", "mt.json:3: corpora.0.name"));
}

TEST(Reader, DoesNotBlameTheKeyThatWasMisspelt) {
  const std::string text = refusal(R"({"corpora": [{"nmae": "a"}]})");
  EXPECT_THAT(text, AllOf(HasSubstr("unknown key corpora.0.nmae; did you mean corpora.0.name?"),
                          Not(HasSubstr("must be a name"))));
  EXPECT_THAT(refusal(R"({"schedule": {"lr": "x"}})"), Not(HasSubstr("problems")));
}

TEST(Reader, ReadsWhatItWrites) {
  SampleConfig c = read(
      R"({"schedule": {"length": "1.5e", "lr": 1e-8}, "corpora": [{"name": "a", "weight": 0.1}], "shares": {"q": 2}})");
  const std::string text = config::text_of(config::to_json(c));
  const SampleConfig again = read(text);
  EXPECT_EQ(config::text_of(config::to_json(again)), text);
  EXPECT_EQ(again.schedule.length, (config::Period{.count = 1.5, .unit = config::Period::Unit::epoch}));
  EXPECT_EQ(again.corpora[0].weight, 0.1F);
}

TEST(Reader, DigestDependsOnMeaningOnly) {
  const auto digest = [](std::string_view text) { return config::digest_of_config(read(text)); };
  EXPECT_EQ(digest(R"({"seed": 1, "workers": 2})"), digest("{/* defaults */ \"workers\": 2}"));
  EXPECT_NE(digest(R"({"seed": 1})"), digest(R"({"seed": 2})"));
}

}  // namespace
}  // namespace argosy::test
