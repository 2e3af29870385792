#include "plan/data_plan.hpp"

#include "plan_support.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

/// Pairs of 20 and 10 tokens in two corpora, 2,000 and 1,000 of them, 3,000 padded_tokens a step.
plan::RunConfig pairs(const std::string& length, const std::vector<std::string>& set = {}) {
  const char* const warmup = length.ends_with("t") ? "1t" : length.ends_with("e") ? "1e" : "1";
  config::Document document =
      config::Document::parse(fmt::format(R"({{"run_dir": "r", "data": {{"tokenizer": "t", "shards": "s", "corpora": [
          {{"name": "a", "source": "a.en", "target": "a.fr"}}, {{"name": "b", "source": "b.en", "target": "b.fr"}}]}},
          "schedule": {{"lr": 1e-3, "style": "constant", "warmup": "{}", "length": "{}"}},
          "model": {{"preset": "mt_base", "vocab_size": 300}}, "batch": {{"global_size": 3000, "micro_size": 300}}}})",
                                          warmup, length),
                              "pairs.json");
  for (const std::string& assignment : set) document.set(assignment);
  return config::from_document<plan::RunConfig>(document);
}

data::ShardIndex index_of_pairs() {
  data::ShardIndex index;
  for (const auto& [name, examples] : {std::pair{"a", 2000}, {"b", 1000}}) {
    data::ShardIndex::Corpus& corpus = index.corpora.emplace_back();
    corpus.name = name;
    corpus.src_tokens = 20L * examples;
    corpus.tgt_tokens = 10L * examples;
    corpus.shards.emplace_back().examples = static_cast<std::uint64_t>(examples);
  }
  return index;
}

plan::DataPlan plan_of(const plan::RunConfig& config, const data::ShardIndex& index = index_of_pairs()) {
  return plan::plan_data(config, data::resolve_sizes(config.batch, 1), index).value();
}

TEST(DataPlan, TellsStepsAndEpochsWhateverTheUnitOfTheLength) {
  // A step draws 98 pairs, of 10 tgt_tokens.
  for (const char* length : {"1000", "980kt"}) {
    const plan::DataPlan plan = plan_of(pairs(length));
    EXPECT_NEAR(plan.steps_per_epoch, 3000 / 98., 1e-9);
    EXPECT_NEAR(plan.steps, 1000, 1e-9);
    EXPECT_NEAR(plan.epochs, 98 / 3., 1e-9);
  }
  EXPECT_NEAR(plan_of(pairs("2e")).steps, 2 * 3000 / 98., 1e-9);
  EXPECT_NEAR(plan_of(pairs("9", {"batch.unit=examples"})).steps_per_epoch, 1, 1e-9);
  // Widths that are multiples of 8 are 3.5 positions wider a side.
  EXPECT_NEAR(plan_of(pairs("9", {"model.encoder.position=alibi"})).steps_per_epoch, 3000 * 37 / 2940., 1e-9);
}

TEST(DataPlan, TellsHowOftenEachCorpusIsRead) {
  const plan::DataPlan even = plan_of(pairs("3e"));
  for (const plan::CorpusPlan& corpus : even.corpora) EXPECT_NEAR(corpus.passes, 3, 1e-9);
  const plan::DataPlan weighted = plan_of(pairs("3e", {"data.corpora.1.weight=4"}));
  EXPECT_NEAR(weighted.corpora.at(1).share, 2 / 3., 1e-9);
  EXPECT_NEAR(weighted.corpora.at(0).passes, 1.5, 1e-9);
  EXPECT_NEAR(weighted.corpora.at(1).passes, 6, 1e-9);
  EXPECT_NEAR(plan_of(pairs("3e", {"data.temperature=1e9"})).corpora.at(1).share, 0.5, 1e-6);
  EXPECT_NEAR(plan_of(pairs("1e", {"data.split.train=0.5", "data.split.validation=0.5"})).steps, 1500 / 98., 1e-9);
}

TEST(DataPlan, CountsTheRowsOfALanguageModel) {
  data::ShardIndex index = index_of_pairs();
  index.corpora.resize(1);
  index.corpora[0].name = "c";
  const auto steps = [&](const std::vector<std::string>& set) { return plan_of(mistral(set), index).steps_per_epoch; };
  // Documents of 11 positions; 128 rows of 8192.
  EXPECT_NEAR(steps({}), 2000 * 11 / (128 * 8192.), 1e-9);
  EXPECT_NEAR(steps({"batch.packing=false"}), 2000 / 128., 1e-9);
  EXPECT_NEAR(steps({"batch.packing=false", "batch.sequence_length=4"}), 2000 * 11 / 4. / 128, 1e-9);
}

TEST(DataPlan, IsPartOfThePlanOfARun) {
  const plan::RunConfig config = pairs("2e");
  const data::ShardIndex index = index_of_pairs();
  const plan::RunPlan plan = plan::plan_run(config, shape_of(config), target(1, 1), &index);
  EXPECT_EQ(plan.steps, 62);
  const auto says_of_data = [&](const plan::RunPlan& of) {
    std::string text;
    for (const std::string& line : plan::lines_of(of, config, plan::Schemes::all)) text += line + "\n";
    return text;
  };
  EXPECT_TRUE(says(says_of_data(plan), "an epoch is about 31 steps; the run has about 62 steps and 2 epochs",
                   "a: 2,000 examples with 20,000 tgt_tokens, 66.7 % of the examples drawn, read 2 times"));
  EXPECT_NEAR(plan::json_of(plan).at("data").at("epochs").as_double(), 2, 1e-9);
  EXPECT_TRUE(says(says_of_data(run_plan_of(config, target(1, 1))), "no token shards of these corpora in s yet"));
  data::ShardIndex other = index;
  other.corpora[0].name = "d";
  EXPECT_FALSE(plan::plan_run(config, shape_of(config), target(1, 1), &other).data);
  for (data::ShardIndex::Corpus& corpus : other.corpora) corpus.shards.clear();
  other.corpora[0].name = "a";
  EXPECT_TRUE(says(refusal(Fault::data, [&] { (void)plan_of(config, other); }), "examples to train on"));
}

}  // namespace
}  // namespace argosy::test
