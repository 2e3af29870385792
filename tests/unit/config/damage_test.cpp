#include <gmock/gmock.h>

#include <set>

#include "config/config.hpp"
#include "core/random.hpp"
#include "sample_config.hpp"

/// Damaged documents and overrides end in a configuration or in Error{config, usage} with a place, never in anything
/// else.
namespace argosy::test {
namespace {

const std::string sound = R"({
  // a comment
  "run_dir": "runs/\u00e4", "dry": true, "workers": 7, "seed": -12,
  "schedule": {"style": "linear_warmup", "lr": 3e-4, "warmup": "8ku", "length": null},
  "optimizer": {"max_grad_norm": 0.5, /* another */ "beta1": 0.95},
  "corpora": [{"name": "a", "languages": ["fi", "en"], "weight": 2.5}, {"name": "b"}],
  "shares": {"x": 1, "y": 0.25},
})";

/// "" when accepted, else the sentence.
std::string verdict(const std::string& text, const config::Options& options = {}) {
  try {
    (void)config::from_document<SampleConfig>(config::Document::parse(text, "mt.json"), options);
    return "";
  } catch (const Error& error) {
    EXPECT_TRUE(error.fault() == Fault::config || error.fault() == Fault::usage) << error.what();
    EXPECT_FALSE(error.facts().where.empty()) << error.what();
    return error.what();
  }
}

TEST(Damage, TheWholeDocumentIsGood) { EXPECT_EQ(verdict(sound), ""); }

TEST(Damage, EveryTruncationIsRefused) {
  const std::size_t closing = sound.rfind('}');
  for (std::size_t size = 0; size <= closing; ++size) EXPECT_NE(verdict(sound.substr(0, size)), "") << size;
}

TEST(Damage, EveryChangedByteIsSurvived) {
  std::size_t refused = 0, tried = 0;
  for (std::size_t at = 0; at < sound.size(); ++at) {
    for (const char c : {'"', '{', '}', '[', ',', ':', '\\', '/', '0', '-', 'e', '\n', '\0', '\xff'}) {
      std::string text = sound;
      text[at] = c;
      refused += !verdict(text).empty();
      ++tried;
    }
    std::string without = sound, twice = sound;
    without.erase(at, 1);
    twice.insert(at, 1, sound[at]);
    refused += !verdict(without).empty() + !verdict(twice).empty();
    tried += 2;
  }
  EXPECT_GT(refused, tried / 2);
}

/// What grew with the square of the keys would take hours here, and what repeats long keys some 150 GB.
TEST(Damage, AsManyKeysAsAFileHoldsAreReadOrRefusedAtOnce) {
  constexpr int many = 150000;
  const auto members = [](std::string_view value) {
    std::string text;
    for (int i = 0; i < many; ++i) text += fmt::format("\"key{}\": {},\n", i, value);
    return text;
  };
  EXPECT_EQ(verdict("{\"shares\": {" + members("1") + "}}"), "");
  EXPECT_THAT(verdict("{" + members("1") + "}"), testing::HasSubstr("has 150000 problems"));
  EXPECT_THAT(verdict("{\"shares\": {" + members("\"x\"") + "}}"), testing::HasSubstr("and 149950 more"));
  std::string corpora;
  for (int i = 0; i < many / 3; ++i) corpora += R"({"weigth": 1, "name": ""},)";
  EXPECT_THAT(verdict("{\"corpora\": [" + corpora + "]}"), testing::HasSubstr("has 100000 problems"));
  const std::string deep = R"({"run_dir": "x", ")" + std::string(1 << 20, 'k') + "\": {" + members("1") + "}}";
  EXPECT_THAT(verdict(deep), testing::HasSubstr("mt.json:1: "));
}

TEST(Damage, AnOverrideAsDeepAsTheCommandLineIsRefused) {
  std::string path = "shares";
  for (int i = 0; i < 50000; ++i) path += ".x";
  EXPECT_THAT(verdict("{}", {.assignments = {path + "=1"}}), testing::HasSubstr("a path of at most 32 keys"));
}

TEST(Damage, SwappedValuesAreNamedOrTaken) {
  const std::set<std::string> values{"null", "true",  "-1", "1e400", "1.5",  "18446744073709551615",
                                     "\"\"", "\"x\"", "[]", "{}",    "[[]]", "{\"a\":{}}"};
  for (const std::string& key : config::keys_of<SampleConfig>())
    for (const std::string& value : values) {
      if (key.starts_with("corpora.")) continue;
      const std::string text = verdict(sound, {.assignments = {key + "=" + value}});
      EXPECT_TRUE(text.empty() || text.find("--set") != std::string::npos) << text;
    }
}

TEST(Damage, RandomOverridesAreSurvived) {
  RandomStream random(1, 2);
  const std::string alphabet = "ab.=0123{}[]\",:-~/ \\corpora.schedule.lr";
  for (int i = 0; i < 2000; ++i) {
    std::string assignment;
    for (std::uint64_t n = random.below(30); n > 0; --n) assignment += alphabet[random.below(alphabet.size())];
    (void)verdict(sound, {.assignments = {assignment}});
  }
}

}  // namespace
}  // namespace argosy::test
