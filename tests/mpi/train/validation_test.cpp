#include <gmock/gmock.h>

#include "decode/load.hpp"
#include "mpi/train/material.hpp"
#include "support/refusal.hpp"
#include "train/evaluate.hpp"

namespace argosy::test {
namespace {

using plan::RunConfig;

TEST(Validation, PutsThePrefixesOfACorpusBeforeTheLines) {
  const SharedFolder folder;
  RunConfig config = with_two_corpora(folder);
  config.data.corpora[0].source_prefix = {"▁"};
  config.data.corpora[1].name = "plain";
  config.validation.metrics = {plan::Metric::loss, plan::Metric::chrf};
  std::vector<plan::ValidationSet>& sets = config.validation.sets;
  sets.push_back(sets[0]);
  sets[0].corpus = "verses";
  sets[1].corpus = "plain";
  (void)train_run(config);
  const boost::json::object metrics =
      checkpoint::Reader{Files::system(), folder / "run/export/000000006"}.sections().metrics;
  const std::string path = sets[0].source.items[0] + "-" + sets[0].target.value().items[0];
  EXPECT_NE(metrics.at(path + "#1").at("loss"), metrics.at(path + "#2").at("loss"));
  EXPECT_GT(metrics.at(path + "#1").at("chrf").to_number<double>(), 0);

  sets[0].corpus = "plain";
  config.run_dir = (folder / "alike").string();
  (void)train_run(config);
  const boost::json::object alike =
      checkpoint::Reader{Files::system(), folder / "alike/export/000000006"}.sections().metrics;
  EXPECT_EQ(alike.at(path + "#1"), alike.at(path + "#2"));
  EXPECT_EQ(alike.at(path + "#2"), metrics.at(path + "#2"));
}

TEST(Validation, TextThatIsNotThereIsNamedBeforeTheFirstStep) {
  const SharedFolder folder;
  RunConfig config = Material::get().config(folder / "run");
  config.validation.sets[0].target = (folder / "absent.es").string();
  EXPECT_THAT(refusal(Fault::data, [&] { (void)train_run(config); }),
              testing::HasSubstr((folder / "absent.es").string()));
  EXPECT_FALSE(Files::system().exists(folder / "run/metrics.jsonl"));
}

TEST(Validation, KeepsSamplesAndNamesACollapse) {
  const SharedFolder folder;
  RunConfig config = Material::get().config(folder / "run");
  config.schedule.lr = 1e-12;  // random weights translate everything alike
  config.optimizer.ema = 0.5;
  config.validation.samples = 2;
  config.validation.collapse = true;
  const std::string said = warnings_of_run(config);
  EXPECT_TRUE(world().rank() != 0 || says(said, "the model has"));
  int validations = 0;
  for (const boost::json::object& line : metrics_lines(folder / "run")) {
    if (!line.contains("validation")) continue;
    ++validations;
    const boost::json::array& samples = line.at("samples").as_array();
    ASSERT_EQ(samples.size(), 2);
    for (const char* key : {"source", "reference", "translation"}) EXPECT_FALSE(samples[1].at(key).as_string().empty());
    EXPECT_NE(samples[0].at("source"), samples[1].at("source"));
    EXPECT_TRUE(line.at("figures").as_object().contains("repeating"));
    EXPECT_FALSE(line.at("figures").as_object().contains("chrf"));
  }
  EXPECT_EQ(validations, world().rank() == 0 ? 4 : 0) << "two, of the weights and of their mean";

  config.run_dir = (folder / "quiet").string();
  config.validation.samples = 0;
  config.validation.collapse = false;
  EXPECT_FALSE(says(warnings_of_run(config), "the model has"));
  for (const boost::json::object& line : metrics_lines(folder / "quiet")) {
    EXPECT_FALSE(line.contains("samples"));
    EXPECT_FALSE(line.contains("validation") && line.at("figures").as_object().contains("repeating"));
  }
}

TEST(Validation, IsLeftWhereTheRunMustStopAndTakenUpAgain) {
  const SharedFolder folder;
  const auto config_of = [&](const char* run, double ema) {
    RunConfig config = with_two_corpora(folder);
    config.run_dir = (folder / run).string();
    config.optimizer.ema = ema;
    config.validation.metrics = {plan::Metric::loss, plan::Metric::bleu};
    config.validation.sets.push_back(config.validation.sets[0]);
    config.checkpoint.export_state = plan::ExportState::full;
    return config;
  };
  EXPECT_EQ(train_run(config_of("whole", 0)).exit, Exit::ok);
  for (const std::int64_t step : {3, 6}) {  // between others, and the last one
    const train::TrainReport report = train_run(config_of("parts", 0), stop_behind(step, 0));
    EXPECT_EQ(report.exit, Exit::stopped);
    EXPECT_EQ(report.figures.at("step").to_number<std::int64_t>(), step) << "no step more";
    for (const boost::json::object& line : metrics_lines(folder / "parts"))
      EXPECT_FALSE(line.contains("validation") && line.at("step").to_number<std::int64_t>() == step);
  }
  EXPECT_EQ(train_run(config_of("parts", 0)).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder / "parts/export/000000006"), bits_of(folder / "whole/export/000000006"));
  EXPECT_EQ(metrics_of(folder / "parts"), metrics_of(folder / "whole"));
  // A validation of the mean leaves the weights in their place.
  EXPECT_EQ(train_run(config_of("whole mean", 0.5)).exit, Exit::ok);
  EXPECT_EQ(train_run(config_of("mean", 0.5), stop_behind(3, world().size() - 1)).exit, Exit::stopped);
  EXPECT_EQ(train_run(config_of("mean", 0.5)).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder / "mean/export/000000006"), bits_of(folder / "whole mean/export/000000006"));
}

// More lines than a rank translates before it asks.
TEST(Validation, TranslatesAllLinesAndAsksBetween) {
  const SharedFolder folder;
  (void)train_run(Material::get().config(folder / "run"));
  const checkpoint::Reader reader{Files::system(), folder / "run/export/000000006"};
  const decode::LoadedModel loaded = decode::load_model(model::stored_model(reader), c10::kCPU);
  const Verses text = verses(150);
  train::EvaluationSet set{.name = "many", .text = {}, .batches = {data::Batch{}}};
  set.batches.front().tgt_tokens = 1;
  for (int rank = 0; rank < world().size(); ++rank) {
    set.text.source.insert(set.text.source.end(), text.english.begin(), text.english.end());
    set.text.target.insert(set.text.target.end(), text.spanish.begin(), text.spanish.end());
  }
  const auto evaluated = [&](int most_asked) {
    int asked = 0;
    const train::EvaluatedModel model{
        .nll_of = [](const data::Batch&) { return 1.0; },
        .with_whole = [&](std::size_t, const train::UseModel& use) { use(*loaded.model); },
        .stops = [&](const comm::Communicator& ranks) { return comm::any_of(ranks, ++asked > most_asked); }};
    return in_context(world(), topology(Hierarchy::flat), Files::system(), [&](comm::Context& context) {
      const auto found = train::evaluate(context, model, loaded.tokenizer, set, {plan::Metric::bleu});
      return std::pair(found ? found->translations : std::vector<std::string>{}, asked);
    });
  };
  const auto [all, asked] = evaluated(100);
  EXPECT_EQ(asked, 2) << "before the batch, and between the lines";
  ASSERT_EQ(all.size(), set.text.source.size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], all[i % 150]) << i;
  EXPECT_TRUE(evaluated(1).first.empty());
  EXPECT_EQ(evaluated(0), std::pair(std::vector<std::string>{}, 1));
}

TEST(Validation, RunsTheUsersCommandOnEachExport) {
  const SharedFolder folder;
  RunConfig config = Material::get().config(folder / "run");
  config.checkpoint.export_interval.count = 3;
  config.validation.command = {
      .run = "sleep 0.1; [ -f \"$ARGOSY_EXPORT/MANIFEST.json\" ] && echo \"{\\\"seen\\\": $ARGOSY_STEP}\"",
      .limit_s = 60};
  EXPECT_EQ(train_run(config).exit, Exit::ok);
  double last = 0;
  for (const boost::json::object& line : metrics_lines(folder / "run")) {
    if (!line.contains("validation") || line.at("validation").as_string() != "command") continue;
    last = line.at("figures").at("seen").to_number<double>();
    EXPECT_EQ(line.at("figures").at("export_step").to_number<double>(), last);
  }
  EXPECT_EQ(last, world().rank() == 0 ? 6 : 0);

  config.run_dir = (folder / "slow").string();
  config.validation.command = {.run = "sleep 60", .limit_s = 0.3};
  const std::string said = warnings_of_run(config);
  EXPECT_TRUE(world().rank() != 0 || says(said, "the command: expected done within 0.3 s"));
}

// The set is of other text than the training, whose loss falls alone.
TEST(Validation, NamesTextThatIsLearntByHeart) {
  const SharedFolder folder;
  RunConfig config = Material::get().config(folder / "run");
  config.schedule.lr = 1e-2;
  config.schedule.length.count = 200;
  config.validation.interval.count = 20;
  config.validation.sets.front() = {.source = folder.write("other.en", "zqx jvk qqz\n").string(),
                                    .target = folder.write("other.es", "vxq kkj xzz qvj\n").string()};
  const std::string said = warnings_of_run(config);
  if (world().rank() != 0) return;
  EXPECT_TRUE(says(said, "quarter below the loss of other.en", "corpus verses has been read"));
  EXPECT_TRUE(says(said, "the loss of other.en (", "was worse than its best"));
}

}  // namespace
}  // namespace argosy::test
