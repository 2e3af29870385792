#include "data/data_config.hpp"

#include <gmock/gmock.h>

#include <cctype>
#include <cstdlib>
#include <set>

#include "config/describe.hpp"
#include "support/refusal.hpp"

namespace argosy::data {
namespace {

using testing::HasSubstr;

DataConfig read_data(const std::string& text) {
  return config::from_document<DataConfig>(config::Document::parse(text, "data.json"));
}

template <class Body>
std::string refused_config(const Body& body) {
  return test::refusal(Fault::config, body);
}

constexpr const char* pairs_text =
    R"({"tokenizer": "t.model", "shards": "s", "corpora": [{"name": "ep", "languages": ["fi", "en"],
  "source": "ep.fi", "target": "ep.en", "weight": 2.0, "transforms": [{"type": "max_length", "source": 100}]}]})";

TEST(DataConfig, ReadsAndHasATextForEachKey) {
  const DataConfig data = read_data(pairs_text);
  EXPECT_EQ(data.corpora.at(0).target, config::StringOrList{"ep.en"});
  const auto& most = std::get<MaxLength>(data.corpora.at(0).transforms.at(0).value);
  EXPECT_EQ(std::tuple(most.source, most.target), std::tuple(100, 200));
  EXPECT_THAT(config::keys_without_text<DataConfig>(), testing::IsEmpty());
  EXPECT_THAT(config::keys_without_text<BatchConfig>(), testing::IsEmpty());
}

TEST(DataConfig, RefusesWhatCannotWork) {
  const auto data_with = [](const std::function<void(DataConfig&)>& change) {
    DataConfig data = read_data(pairs_text);
    change(data);
    config::Problems problems;
    validate(data, problems);
    for (const CorpusConfig& corpus : data.corpora) validate(corpus, problems);
    std::string all;
    for (const auto& problem : problems.all())
      all += problem.pointer + ": " + problem.wanted + ", " + problem.got + "\n";
    return all;
  };
  EXPECT_EQ(data_with([](DataConfig&) {}), "");
  const std::pair<const char*, std::function<void(DataConfig&)>> changes[] = {
      {"/tokenizer", [](DataConfig& d) { d.tokenizer.clear(); }},
      {"/shards", [](DataConfig& d) { d.shards.clear(); }},
      {"/workers", [](DataConfig& d) { d.workers = 0; }},
      {"/temperature", [](DataConfig& d) { d.temperature = 0; }},
      {"a name that no other corpus has", [](DataConfig& d) { d.corpora.push_back(d.corpora[0]); }},
      {"a mixture", [](DataConfig& d) { d.corpora.push_back({.name = "lm", .source = "x"}); }},
      {"/name", [](DataConfig& d) { d.corpora[0].name = "../ep"; }},
      {"two codes", [](DataConfig& d) { d.corpora[0].languages = {"fi"}; }},
      {"/weight", [](DataConfig& d) { d.corpora[0].weight = -1; }},
      {"/documents: line, since these are pairs", [](DataConfig& d) { d.corpora[0].documents = DocumentUnit::file; }},
      {"/documents: line, blank_line or file", [](DataConfig& d) { d.corpora[0].documents = DocumentUnit::record; }},
      {"/source", [](DataConfig& d) { d.corpora[0].source = std::vector<std::string>{}; }},
      {"/target: a text file",
       [](DataConfig& d) {
         d.corpora[0].target = std::vector<std::string>{"a", ""};
       }},
      {"/target: absent", [](DataConfig& d) { d.corpora[0].format = TextFormat::tsv; }},
      {"/fields/source: absent", [](DataConfig& d) { d.corpora[0].fields.source = "/a"; }},
      {"a name that no other corpus has, ep-reversed",
       [](DataConfig& d) {
         d.corpora.push_back(d.corpora[0]);
         d.corpora[0].directions = Directions::both;
         d.corpora[1].name = "ep-reversed";
       }},
      {"/directions: forward",
       [](DataConfig& d) { d.corpora[0] = {.name = "lm", .source = "x", .directions = Directions::both}; }},
      {"/transforms/1", [](DataConfig& d) { d.corpora[0].transforms.push_back({Subword{}}); }},
      {"/transforms/1", [](DataConfig& d) {
         d.corpora[0].transforms = {{Subword{}}, {Subword{}}};
       }}};
  for (const auto& [words, change] : changes) EXPECT_THAT(data_with(change), HasSubstr(words));
}

TEST(DataConfig, BothDirectionsAreTwoCorporaOfTheSameFiles) {
  DataConfig data = read_data(
      R"({"tokenizer": "t.model", "shards": "s", "corpora": [
      {"name": "ep", "languages": ["fi", "en"], "source": "ep.fi", "target": ["ep.en"], "directions": "both", "weight": 2,
       "source_prefix": ["<to_{to}>"], "transforms": [{"type": "script", "source": ["Latin"], "target": ["Greek"]},
                                                      {"type": "max_length", "source": 10}]},
      {"name": "forward", "source": "a", "target": "b"},
      {"name": "tsv", "languages": ["fi", "en"], "source": "x.tsv.gz", "directions": "both",
       "transforms": [{"type": "length_ratio"}]},
      {"name": "jsonl", "languages": ["fi", "en"], "source": "x.jsonl", "fields": {"target": "/t"},
       "directions": "both"}]})");
  expand_directions(data);
  std::vector<std::string> names;
  for (const CorpusConfig& corpus : data.corpora) {
    names.push_back(corpus.name);
    EXPECT_EQ(corpus.directions, Directions::forward);
    EXPECT_TRUE(has_pairs(corpus));
  }
  EXPECT_THAT(names,
              testing::ElementsAre("ep", "ep-reversed", "forward", "tsv", "tsv-reversed", "jsonl", "jsonl-reversed"));
  const CorpusConfig& ep = data.corpora[1];
  EXPECT_EQ(std::tuple(ep.source, ep.target.value(), ep.languages, ep.weight),
            std::tuple(config::StringOrList{"ep.en"}, config::StringOrList{"ep.fi"},
                       std::vector<std::string>{"en", "fi"}, 2));
  const auto& script = std::get<Script>(ep.transforms.at(0).value);
  EXPECT_THAT(script.source, testing::ElementsAre("Greek"));
  EXPECT_THAT(script.target, testing::ElementsAre("Latin"));
  EXPECT_EQ(std::get<MaxLength>(ep.transforms.at(1).value).source, 10);
  data.tokenizer_training.emplace();
  EXPECT_THAT(symbols_of(data), testing::ElementsAre("<to_en>", "<to_fi>"));
  EXPECT_EQ(prefixes_of(ep), (Prefixes{.source = {"<to_fi>"}}));
  EXPECT_EQ(data.corpora[4].source, config::StringOrList{"x.tsv.gz"});
  EXPECT_EQ(data.corpora[4].fields, (FieldsConfig{.source = "2", .target = "1"}));
  EXPECT_EQ(data.corpora[6].fields, (FieldsConfig{.source = "/t", .target = "/source"}));
  const std::size_t count = data.corpora.size();
  expand_directions(data);
  EXPECT_EQ(data.corpora.size(), count);
}

TEST(DataConfig, ALaterPrefixStandsBeforeAnEarlierOne) {
  CorpusConfig corpus{.name = "c", .languages = {"fi", "en"}, .source_prefix = {"<{from}>", "<b>"}};
  corpus.transforms = {{Prefix{.source = {"<a>"}, .target = {"<{to}>"}}}, {TokenDrop{}}};
  EXPECT_EQ(prefixes_of(corpus), (Prefixes{.source = {"<fi>", "<b>", "<a>"}, .target = {"<en>"}}));
}

TEST(DataConfig, ATransformHasTheKeysOfItsType) {
  const auto read = [](const std::string& transform) {
    return read_data(R"({"tokenizer": "t", "shards": "s", "corpora": [{"name": "a", "source": "a", "target": "b",
                         "transforms": [)" +
                     transform + "]}]}");
  };
  const std::string text = R"({"source":9,"target":200,"type":"max_length"})";
  EXPECT_EQ(config::text_of(config::to_json(read(R"({"source": 9})").corpora[0].transforms[0]), false), text);
  EXPECT_EQ(config::text_of(config::to_json(read(text).corpora[0].transforms[0]), false), text);
  const auto refused = [&](const char* transform) { return refused_config([&] { (void)read(transform); }); };
  EXPECT_THAT(refused(R"({"type": "max_lenght"})"),
              testing::AllOf(HasSubstr("transforms.0.type must be one of max_length, subword, "),
                             HasSubstr(", got \"max_lenght\"; did you mean max_length?")));
  EXPECT_THAT(refused(R"({"type": "max_length", "sauce": 3})"),
              HasSubstr("transforms.0.sauce; the keys at this place are type, source, target"));
  EXPECT_THAT(refused("3"), HasSubstr("an object"));
  EXPECT_THAT(config::text_of(config::schema_of<DataConfig>(), false), HasSubstr(R"("type":{"const":"max_length"})"));
  EXPECT_THAT(config::keys_of<DataConfig>(), testing::Contains("corpora.0.transforms.0.target"));
}

/// A number far out of range is a problem of the configuration, in whatever key it stands.
TEST(DataConfig, RefusesExtremeNumbers) {
  const std::string whole =
      R"({"tokenizer": "t", "shards": "s", "workers": 2, "temperature": 1.0, "split": {"train": 0.5, "validation": 0.5},
          "tokenizer_training": {"vocab_size": 300, "character_coverage": 1.0, "sample_lines": 100},
          "corpora": [{"name": "a", "source": "a", "target": "b", "weight": 1.0,
                       "transforms": [{"type": "max_length", "source": 9, "target": 9}]}]})";
  EXPECT_NO_THROW((void)read_data(whole));
  const std::set<std::string> unbounded{"temperature", "sample_lines"};
  for (const std::string key : {"workers", "temperature", "train", "validation", "vocab_size", "character_coverage",
                                "sample_lines", "weight", "source", "target"}) {
    const std::size_t begin =
        whole.find("\"" + key + "\": ", key == "source" || key == "target" ? whole.find("max_") : 0) + key.size() + 4;
    const std::size_t end = whole.find_first_of(",}", begin);
    for (const char* number : {"-1", "2147483648", "9223372036854775807", "NaN", "1e400", "\"x\""}) {
      std::string text = whole;
      text.replace(begin, end - begin, number);
      if (unbounded.contains(key) && std::isdigit(number[0]) != 0 && std::string_view{number} != "1e400") {
        EXPECT_NO_THROW((void)read_data(text)) << key << " " << number;
      } else {
        EXPECT_THAT(refused_config([&] { (void)read_data(text); }), HasSubstr("data.json")) << key << " " << number;
      }
    }
  }
}

TEST(DataConfig, RefusesSharesAndTrainingOutOfRange) {
  const std::string head = R"({"tokenizer": "t", "shards": "s", "corpora": [{"name": "a", "source": "a"}], )";
  for (const auto& [words, tail] : {std::pair{"validation", R"("split": {"train": 0.9, "validation": 0.2})"},
                                    {"train", R"("split": {"train": 0})"},
                                    {"vocab_size", R"("tokenizer_training": {"vocab_size": 2})"},
                                    {"character_coverage", R"("tokenizer_training": {"character_coverage": 1.5})"},
                                    {"sample_lines", R"("tokenizer_training": {"sample_lines": 0})"},
                                    {"replace", R"("invalid_utf8": "ignore")"}}) {
    const std::string text = head + tail + "}";
    EXPECT_THAT(refused_config([&] { read_data(text); }), HasSubstr(words));
  }
}

TEST(CacheFolder, FollowsConfigurationRunAndEnvironment) {
  DataConfig data;
  data.cache = "elsewhere";
  EXPECT_EQ(cache_folder(data, "runs/x"), Path{"elsewhere"});
  data.cache.reset();
  EXPECT_EQ(cache_folder(data, "runs/x"), Path{"runs/x/cache"});
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string saved = before != nullptr ? before : "";
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(cache_folder(data, ""), Path{"/somewhere/argosy"});
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(user_cache_folder(), Path{std::getenv("HOME")} / ".cache/argosy");
  if (!saved.empty()) setenv("XDG_CACHE_HOME", saved.c_str(), 1);
}

using OptionalSize = std::optional<std::int64_t>;

BatchConfig batch_of_sizes(OptionalSize global, OptionalSize micro, OptionalSize accumulation) {
  BatchConfig batch;
  batch.global_size = global;
  batch.micro_size = micro;
  batch.accumulation = accumulation;
  return batch;
}

TEST(BatchSizes, TwoOfThreeSuffice) {
  const auto resolve = [](OptionalSize global, OptionalSize micro, OptionalSize accumulation, int world) {
    return resolve_sizes(batch_of_sizes(global, micro, accumulation), world);
  };
  const OptionalSize none;
  const StepSizes even = resolve(400000, 25000, none, 4);
  EXPECT_EQ(std::tuple(even.micro_batches, even.accumulation, even.idle_share), std::tuple(16, 4, 0));
  EXPECT_EQ(resolve(none, 25000, 4, 4).global_size, 400000);
  EXPECT_EQ(resolve(400000, none, 4, 4).micro_size, 25000);
  EXPECT_EQ(resolve(400000, 25000, 4, 4).accumulation, 4);
  const StepSizes uneven = resolve(400, 100, none, 3);
  EXPECT_EQ(uneven.accumulation, 2);
  EXPECT_NEAR(uneven.idle_share, 2.0 / 6, 1e-12);

  EXPECT_THAT(refused_config([&] { resolve(400, none, none, 1); }), HasSubstr("two of"));
  EXPECT_THAT(refused_config([&] { resolve(410, 100, none, 1); }), HasSubstr("400 or 500"));
  EXPECT_THAT(refused_config([&] { resolve(410, none, 4, 1); }), HasSubstr("408 or 412"));
  EXPECT_THAT(refused_config([&] { resolve(400, 100, 3, 1); }), HasSubstr("accumulation 4"));
}

TEST(BatchSizes, ValidationNamesTheNearestLegalValues) {
  config::Problems problems;
  validate(batch_of_sizes(410, 100, {}), problems);
  ASSERT_EQ(problems.all().size(), 1U);
  EXPECT_THAT(problems.all()[0].remedy, HasSubstr("400 or 500"));
  EXPECT_EQ(problems.all()[0].pointer, "/global_size");

  const auto pointers = [](const std::function<void(BatchConfig&)>& change) {
    BatchConfig changed;
    change(changed);
    config::Problems found;
    validate(changed, found);
    return found.all().size() == 1 ? found.all()[0].pointer : std::string{};
  };
  EXPECT_EQ(pointers([](BatchConfig& b) { b.micro_size = 0; }), "/micro_size");
  EXPECT_EQ(pointers([](BatchConfig& b) { b.accumulation = 0; }), "/accumulation");
  EXPECT_EQ(pointers([](BatchConfig& b) { b.width_multiple = 0; }), "/width_multiple");
  EXPECT_EQ(pointers([](BatchConfig& b) { b.pool = 0; }), "/pool");
  EXPECT_EQ(pointers([](BatchConfig& b) { b.sequence_length = 1; }), "/sequence_length");
}

TEST(BatchSizes, AutoNeedsTheSizeOfAStepAndDecidesTheAccumulation) {
  const auto problems = [](OptionalSize global, OptionalSize accumulation) {
    BatchConfig batch = batch_of_sizes(global, {}, accumulation);
    batch.micro_size.is_auto = true;
    config::Problems found;
    validate(batch, found);
    std::vector<std::string> pointers;
    for (const auto& problem : found.all()) pointers.push_back(problem.pointer);
    return pointers;
  };
  EXPECT_TRUE(problems(400, {}).empty());
  EXPECT_EQ(problems({}, {}), std::vector<std::string>{"/global_size"});
  EXPECT_EQ(problems(400, 2), std::vector<std::string>{"/accumulation"});
}

TEST(Sizes, NoProductOfThemOverflows) {
  const std::vector<OptionalSize> numbers{std::nullopt, 1, 1000, 1 << 16, 1LL << 31, 1LL << 40};
  for (const auto& global : numbers)
    for (const auto& micro : numbers)
      for (const auto& accumulation : numbers)
        for (const int world : {1, 4096, 1 << 20}) {
          const BatchConfig config = batch_of_sizes(global, micro, accumulation);
          config::Problems problems;
          validate(config, problems);
          if (!problems.all().empty()) continue;
          try {
            const StepSizes sizes = resolve_sizes(config, world);
            EXPECT_EQ(sizes.micro_size * sizes.micro_batches, sizes.global_size);
            EXPECT_GE(sizes.accumulation, 1);
            EXPECT_LE(sizes.accumulation, 1 << 16);
            EXPECT_GE(std::int64_t{sizes.accumulation} * world, sizes.micro_batches);
          } catch (const Error& error) {
            EXPECT_EQ(error.fault(), Fault::config) << error.what();
          }
        }
}

}  // namespace
}  // namespace argosy::data
