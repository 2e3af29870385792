#include <limits>
#include <set>

#include "config/describe.hpp"
#include "soup/inputs.hpp"
#include "soup/soup.hpp"
#include "spec/model_spec.hpp"
#include "support/forged_numbers.hpp"
#include "support/refusal.hpp"
#include "support/small_model.hpp"
#include "support/temp_folder.hpp"

namespace argosy::soup {
namespace {

/// Two checkpoints of one run, the second of which a test spoils, and a soup that must not be made of them.
class TwoCheckpoints {
 public:
  struct Variant {
    std::string run = "run";
    std::int64_t step = 1;
    test::Units units = test::tiny_units();
    checkpoint::Sections sections = test::toy_sections();
    std::vector<checkpoint::Attachment> attachments = test::toy_attachments();
    bool spoiled = false;
    std::uint64_t weights = 0;  // those of this step; 0: its own
    checkpoint::Kind kind = checkpoint::Kind::temp;
    bool with_moments = true;
  };
  Path save(const Variant& v) {
    test::Toy toy{v.units, context.topology().layout(), 0};
    toy.fill(v.weights > 0 ? v.weights : static_cast<std::uint64_t>(v.step));
    if (v.spoiled) toy.tensor(0, 1)[700] = std::numeric_limits<float>::quiet_NaN();
    return test::save_step(context, folder / v.run, v.step, toy.states(v.with_moments), v.sections, v.attachments,
                           v.kind);
  }
  void take(const Variant& second) { config.inputs = {save({}).string(), save(second).string()}; }
  /// Expects a refusal with all its parts that says `words`, and nothing written.
  void refuse(Exit code, const std::string& words) {
    config.output = (folder / "soup").string();
    const Error error = test::error_of([&] { make_soup(context.get(), config); });
    const std::string said = error.what();
    EXPECT_EQ(exit_code(error.fault()), code) << said;
    EXPECT_TRUE(test::says(said, words));
    const Facts& facts = error.facts();
    for (const std::string& part : {facts.wanted, facts.got, facts.where, facts.remedy})
      EXPECT_FALSE(part.empty()) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    for (const std::string& name : Files::system().list(folder.path()))
      EXPECT_EQ(name.find("soup"), std::string::npos) << name;
  }

  Os os;
  test::TempFolder folder;
  test::TestContext context{os, test::world()};
  SoupConfig config;
};

class SoupRefusals : public testing::Test, public TwoCheckpoints {};

struct Refusal {
  int number;  // of the thirteen
  std::string name;
  Exit code;
  std::string words;
  std::function<void(TwoCheckpoints&)> prepare;
};

/// A second checkpoint that differs in `change`.
std::function<void(TwoCheckpoints&)> with(const std::function<void(TwoCheckpoints::Variant&)>& change) {
  return [change](TwoCheckpoints& two) {
    TwoCheckpoints::Variant other{.step = 2};
    change(other);
    two.take(other);
  };
}
std::function<void(TwoCheckpoints&)> with_model(const std::string& key, const boost::json::value& value) {
  return with([=](auto& other) { other.sections.model[key] = value; });
}
/// Two that go together, and then `change`.
std::function<void(TwoCheckpoints&)> sound_but(const std::function<void(TwoCheckpoints&)>& change) {
  return [=](TwoCheckpoints& two) {
    two.take({.step = 2});
    change(two);
  };
}
std::function<void(TwoCheckpoints&)> with_recipe(const Recipe& recipe) {
  return sound_but([=](TwoCheckpoints& two) { two.config.recipe = recipe; });
}

constexpr double infinity = std::numeric_limits<double>::infinity();

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> all{
      {1, "ParameterNames", Exit::data, "block.0/up",
       with([](auto& o) { o.units[1].second[1].name = "block.0/side"; })},
      {1, "MoreParameters", Exit::data, "has the parameter head/more, which the first input", with([](auto& o) {
         o.units[2].second.push_back({"head/more", {3}});
       })},
      {2, "Shapes", Exit::data, "block.0/up of shape [19, 53], got [53, 19]", with([](auto& o) {
         o.units[1].second[1].shape = {53, 19};
       })},
      {3, "ElementTypes", Exit::io, "at /params/1/dtype: expected bf16", sound_but([](TwoCheckpoints& two) {
         test::edit_manifest(two.config.inputs[1],
                             [](auto& o) { o["params"].as_array()[0].as_object()["dtype"] = "bf16"; });
       })},
      {4, "ModelConfiguration", Exit::data, "model configuration", with_model("config_digest", "dead")},
      {5, "Tokenizer", Exit::data, "tokenizer", with_model("tokenizer_digest", "dead")},
      {5, "TokenizerFile", Exit::data, "has another tokenizer.model than the first input",
       with([](auto& o) { o.attachments[0].content = "others"; })},
      {5, "NoTokenizerFile", Exit::data, "files of the first input (tokenizer.model), got none",
       with([](auto& o) { o.attachments.clear(); })},
      {6, "VocabularySize", Exit::data, "another vocabulary size than the first input (38, not 37)",
       with_model("vocab_size", 38)},
      {7, "TiedWeights", Exit::data, "set of tied weights", with_model("tied", boost::json::array{"embedding/weight"})},
      {8, "DamagedManifest", Exit::io, "does not end with its own digest",
       sound_but([](TwoCheckpoints& two) { test::flip(Path{two.config.inputs[1]} / checkpoint::manifest_name, 77); })},
      {8, "CutShort", Exit::io, "got 1000 bytes", sound_but([](TwoCheckpoints& two) {
         Files::system().update(Path{two.config.inputs[1]} / checkpoint::shard_name(0, 1)).truncate(1000);
       })},
      {9, "NotFinite", Exit::data, "finite weights, got NaN or Inf; leave", with([](auto& o) { o.spoiled = true; })},
      {9, "NotFiniteWhateverTheManifestSays", Exit::data, "NaN or Inf in block.0/",
       [](TwoCheckpoints& two) {
         two.take({.step = 2, .spoiled = true});
         test::edit_manifest(two.config.inputs[1], [](auto& o) { o["finite"] = true; });
       }},
      {10, "AnotherRun", Exit::data, "--allow-cross-run", with([](auto& o) { o.run = "other"; })},
      // The only integers that belong to a model are those of its vocabulary map.
      {11, "IntegerTables", Exit::data, "has another vocab_map.json than the first input",
       [](TwoCheckpoints& two) {
         TwoCheckpoints::Variant first, second{.step = 2};
         first.attachments.push_back({"vocab_map.json", "[0,1,2]"});
         second.attachments.push_back({"vocab_map.json", "[0,2,1]"});
         two.config.inputs = {two.save(first).string(), two.save(second).string()};
       }},
      {11, "MoreIntegerTables", Exit::data,
       "files of the first input (tokenizer.model), got tokenizer.model, vocab_map.json", with([](auto& o) {
         o.attachments.push_back({"vocab_map.json", "[0,1,2]"});
       })},
      {12, "OneInput", Exit::usage, "at least two",
       [](TwoCheckpoints& two) { two.config.inputs = {two.save({}).string()}; }},
      {12, "AnInputTwice", Exit::usage, "is given twice", sound_but([](TwoCheckpoints& two) {
         Files::system().link_symbolically(two.config.inputs[0], two.folder / "link");
         two.config.inputs.push_back((two.folder / "link").string());
       })},
      {12, "AStepSavedForAWhileAndForGood", Exit::usage, "checkpoints/000000001; ", sound_but([](TwoCheckpoints& two) {
         two.config.inputs.push_back(two.save({.kind = checkpoint::Kind::export_}).string());
       })},
      {12, "AStepSavedForGoodWithoutItsMoments", Exit::usage, "checkpoints/000000001; ",
       sound_but([](TwoCheckpoints& two) {
         two.config.inputs.push_back(two.save({.kind = checkpoint::Kind::export_, .with_moments = false}).string());
         two.config.recipe = {.type = RecipeType::last_k, .last = 2};
       })},
      {12, "AStepSavedAgainByOtherRanks", Exit::usage, "checkpoints/000000001; ", sound_but([](TwoCheckpoints& two) {
         const checkpoint::Reader first{Files::system(), two.config.inputs[0]};
         const Path again = two.folder / "run/export/000000001";
         Files::system().make_folders(again.parent_path());
         test::write_checkpoint(Files::system(), again, test::tiny_units(), partition::Layout{{2, 1}}, 1,
                                {.run_uuid = first.run_uuid(), .save_nonce = std::string(16, 'd'), .step = 1});
         two.config.inputs.push_back(again.string());
       })},
      {12, "WeightsThatStayedTheSameOverSkippedSteps", Exit::usage, "checkpoints/000000001; ",
       [](TwoCheckpoints& two) { two.take({.step = 2, .weights = 1}); }},
      {12, "WeightCount", Exit::usage, "2 weights, one for each checkpoint, got 3",
       with_recipe({.type = RecipeType::weighted, .weights = {1, 2, 3}})},
      {12, "WeightsOfSumZero", Exit::usage, "a finite sum other than zero, got 0",
       with_recipe({.type = RecipeType::weighted, .weights = {1, -1}})},
      {12, "WeightsThatAreNotFinite", Exit::usage, "a finite sum other than zero, got inf",
       with_recipe({.type = RecipeType::weighted, .weights = {1, infinity}})},
      {12, "FewerThanLastK", Exit::usage, "3 checkpoints at least 0 steps apart, and only 2 of",
       with_recipe({.type = RecipeType::last_k, .last = 3})},
      {12, "OptionOfAnotherRecipe", Exit::usage, "--weights is an option of the recipe weighted, not of uniform",
       with_recipe({.weights = {1, 2}})},
      {12, "GreedyWithoutValidation", Exit::usage, "the recipe greedy needs validation sets",
       with_recipe({.type = RecipeType::greedy})},
      {13, "ASoup", Exit::data, "--allow-soup", sound_but([](TwoCheckpoints& two) {
         two.config.output = (two.folder / "first").string();
         two.config.inputs.push_back(make_soup(two.context.get(), two.config).output.string());
       })},
      {0, "NoCheckpoint", Exit::data, "a committed checkpoint",
       [](TwoCheckpoints& two) {
         two.config.inputs = {two.save({}).string(), two.folder.path().string()};
       }},
  };
  return all;
}

class ThirteenRefusals : public testing::TestWithParam<Refusal>, public TwoCheckpoints {};

TEST_P(ThirteenRefusals, LeavesNothingAndSaysWhatToDo) {
  GetParam().prepare(*this);
  refuse(GetParam().code, GetParam().words);
}
INSTANTIATE_TEST_SUITE_P(All, ThirteenRefusals, testing::ValuesIn(refusals()),
                         [](const auto& refusal) { return refusal.param.name; });

TEST(Refusals, AreThirteen) {
  std::set<int> numbers;
  for (const Refusal& refusal : refusals()) numbers.insert(refusal.number);
  for (int number = 1; number <= 13; ++number) EXPECT_TRUE(numbers.contains(number)) << number;
}

TEST_F(SoupRefusals, AcceptsWhatFitsTogether) {
  take({.step = 2});
  config.output = (folder / "soup/").string();
  const SoupResult report = make_soup(context.get(), config);
  EXPECT_EQ(report.output, folder / "soup");
  const checkpoint::Reader reader{Files::system(), report.output};
  reader.verify();
  EXPECT_EQ(reader.sections().soup.at("recipe"), "uniform");
  EXPECT_EQ(reader.sections().soup.at("inputs").as_array().size(), 2U);
  EXPECT_EQ(reader.sections().model, test::toy_sections().model);
  EXPECT_EQ(reader.run_uuid(), checkpoint::Reader(Files::system(), config.inputs[0]).run_uuid());
  EXPECT_EQ(figures(report).at("parameters").as_int64(), report.parameters);
  EXPECT_GT(report.bytes_read, 2 * 4 * static_cast<std::uint64_t>(report.parameters));
}

TEST_F(SoupRefusals, DamagedWeights) {
  take({.step = 2});
  const Path shard = Path{config.inputs[1]} / checkpoint::shard_name(0, 1);
  // Somewhere in the weights of `head`: found by their first value.
  const float first = test::element("head/scale", 0, 0, 2);
  const std::string text = Files::system().read_text(shard);
  const std::size_t begin = text.find(std::string(reinterpret_cast<const char*>(&first), sizeof(first)));
  ASSERT_LT(begin, text.size());
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t at = begin + 1030 + static_cast<std::uint64_t>(i) * 5000;
    test::flip(shard, at, i);
    refuse(Exit::io, "unit/head/master");
    test::flip(shard, at, i);
  }
}
TEST_F(SoupRefusals, AnotherRunIsTakenWhenAllowed) {
  take({.run = "other", .step = 2});
  config.output = (folder / "soup").string();
  config.allow_cross_run = true;
  EXPECT_EQ(make_soup(context.get(), config).inputs, 2U);
}
TEST_F(SoupRefusals, AnOptimizersTensorsOfOtherShapesAreLeftOut) {
  const partition::FlatSpace rows{{{"block.0/up/row_mean", {19}}}, context.topology().layout()};
  std::vector<float> means(static_cast<std::size_t>(rows.owned_size(0)), 0.5F);
  for (const std::int64_t step : {1, 2}) {
    test::Toy toy{test::tiny_units(), context.topology().layout(), 0};
    auto units = toy.fill(static_cast<std::uint64_t>(step)).states(false);
    units.push_back({"block.0.row_mean", &rows, {{{"row_mean"}, std::as_writable_bytes(std::span{means})}}});
    config.inputs.push_back(test::save_step(context, folder / "run", step, units).string());
  }
  config.output = (folder / "result").string();
  const checkpoint::Reader soup{Files::system(), make_soup(context.get(), config).output};
  EXPECT_EQ(soup.unit_names(), (std::vector<std::string>{"embedding", "block.0", "head"}));
  EXPECT_FALSE(soup.has_optimizer_state());
  config.moments = Moments::zero;
  refuse(Exit::data, "other shapes than the weights (block.0.row_mean)");
}
TEST_F(SoupRefusals, AnOutputThatExists) {
  take({.step = 2});
  config.output = (folder / "kept").string();
  Files::system().make_folders(folder / "kept");
  test::refusal(Fault::usage, [&] { make_soup(context.get(), config); });
  EXPECT_TRUE(Files::system().list(folder / "kept").empty());
}
TEST_F(SoupRefusals, TableShowsStepsAndMetrics) {
  Variant second{.step = 2};
  second.sections.metrics = {{"loss", 1.25}, {"dev", {{"bleu", 31.5}}}};
  Inputs inputs{.mixture = {.weights = {1, 3}, .divisor = 4}};
  inputs.readers.emplace_back(Files::system(), save({}));
  inputs.readers.emplace_back(Files::system(), save(second));
  const std::vector<std::string> lines = table_of(inputs);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(test::says(lines[0], "dev.bleu"));
  EXPECT_TRUE(test::says(lines[1], "2.5", "0.25  "));
  EXPECT_TRUE(test::says(lines[2], "31.5", "1.25", "000000002"));
}

/// The manifest of one input has numbers that nobody wrote.
class ForgedSoup : public SoupRefusals {
 protected:
  /// Inputs of a model that the manifest describes.
  ForgedSoup() {
    const spec::ModelConfig model =
        test::model_config({.type = spec::ModelType::decoder, .width = 8, .ff = 12, .heads = 2, .decoder_layers = 1});
    Variant first;
    first.units.clear();
    for (const spec::Unit& unit : spec::ModelSpec(spec::resolve(model, 37)).units)
      first.units.emplace_back(unit.name, unit.flat());
    first.sections.model["config"] = config::to_json(model);
    Variant second = first;
    second.step = 2;
    config.inputs = {save(first).string(), save(second).string()};
    config.output = (folder / "soup").string();
  }
};

TEST_F(ForgedSoup, NumbersAreRefusedOrHarmless) {
  test::forge_numbers(config.inputs[1], [&] { static_cast<void>(table_of(open_inputs(context.get(), config))); });
}

TEST_F(ForgedSoup, OfAnotherModelThanTheParametersAreOfIsDamage) {
  for (const std::string& input : config.inputs) {
    test::edit_manifest(input, [](auto& document) {
      document["float_bits"].as_object().clear();
      document["model"].as_object()["config"].as_object()["width"] = 16;
    });
  }
  refuse(Exit::io, "of shape [64, 16], got [64, 8]");
  EXPECT_TRUE(test::says(check_checkpoints(context.get(), {config.inputs[0]})[0].wrong, "of shape"));
}

}  // namespace
}  // namespace argosy::soup
