#include <gmock/gmock.h>

#include "mpi/train/material.hpp"
#include "support/refusal.hpp"

namespace argosy::test {
namespace {

using plan::RunConfig;
using testing::HasSubstr;

TEST(Corpora, ReportsHowOftenEachCorpusHasBeenRead) {
  const SharedFolder folder;
  const RunConfig config = Material::get().config(folder / "run");
  const train::TrainReport report = train_run(config);
  double epoch = 0;
  for (const boost::json::object& line : metrics_lines(folder / "run")) {
    if (const auto* value = line.if_contains("epoch")) epoch = value->to_number<double>();
  }
  if (world().rank() == 0) {
    EXPECT_NEAR(report.figures.at("passes").at("verses").to_number<double>(), epoch, 0.02);
  }
}

TEST(Corpora, DrawsFromCorporaByTheTemperature) {
  const SharedFolder folder;
  RunConfig config = with_two_corpora(folder);
  config.data.corpora[1].name = "small";
  config.data.corpora[1].source = config.validation.sets[0].source;
  config.data.corpora[1].target = config.validation.sets[0].target;
  const auto small_to_large = [&](double temperature) {
    config.data.temperature = temperature;
    config.run_dir = (folder / fmt::format("run{}", temperature)).string();
    const boost::json::value passes = train_run(config).figures.at("passes");
    return passes.at("small").to_number<double>() / passes.at("verses").to_number<double>();
  };
  EXPECT_NEAR(small_to_large(1), 1, 0.5);
  EXPECT_GT(small_to_large(1e9), 2);
}

TEST(Corpora, WarnsOfAStepThatTakesAllExamples) {
  const SharedFolder folder;
  RunConfig config = Material::get().config(folder / "run");
  EXPECT_FALSE(says(warnings_of_run(config), "an epoch is one step"));
  config = Material::get().config(folder / "large", {"schedule.length=1", "schedule.warmup=0"});
  config.batch.global_size = *config.batch.global_size * 1000;
  const std::string said = warnings_of_run(config);
  EXPECT_TRUE(world().rank() != 0 || says(said, "an epoch is one step"));
}

TEST(LongLines, AreNamedBeforeTheFirstStep) {
  const SharedFolder folder;
  RunConfig config = Material::get().config(folder / "run");
  const auto refused = [&](const std::string& where) {
    const std::string said = refusal(Fault::data, [&] { (void)train_run(config); });
    EXPECT_THAT(said, HasSubstr(where));
    EXPECT_THAT(said, HasSubstr("model.max_positions"));
  };
  std::string line = "In the beginning";
  for (int i = 0; i < 600; ++i) line += " and";
  config.validation.sets[0].source = folder.write("long.en", "God said\n" + line + "\n").string();
  config.validation.sets[0].target = folder.write("long.es", "Dios dijo\ny\n").string();
  config.model.max_positions = 500;
  refused("long.en:2");
  config.model.max_positions = 8;
  refused("corpus verses, pair 1");
}

}  // namespace
}  // namespace argosy::test
