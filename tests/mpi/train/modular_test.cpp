#include <gmock/gmock.h>

#include <map>

#include "mpi/train/modular_run.hpp"
#include "support/refusal.hpp"

/// Runs whose tasks share only parts of the model.
namespace argosy::test {
namespace {

using plan::RunConfig;
using spec::Share;

TEST_F(ModularRun, StoppedAndResumedGivesTheBitsOfAnUninterruptedRun) {
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(stage);
    const auto config_of = [&](const std::string& run) {
      RunConfig config = staged(run, stage);
      if (stage == 3) config.model.embeddings.share = spec::EmbeddingShare::language;
      return config;
    };
    EXPECT_EQ(train_run(config_of("whole")).exit, Exit::ok);
    EXPECT_EQ(train_run(config_of("parts"), stop_behind(2, 0)).exit, Exit::stopped);
    EXPECT_EQ(train_run(config_of("parts")).exit, Exit::ok);
    const Path last = "export/000000006", whole = folder_ / fmt::format("whole {}", stage) / last,
               parts = folder_ / fmt::format("parts {}", stage) / last;
    EXPECT_EQ(bits_of(parts), bits_of(whole));
    EXPECT_EQ(sections_text(parts), sections_text(whole));
    const checkpoint::Reader reader{Files::system(), whole};
    EXPECT_EQ(reader.sections().optimizer.at("component_steps").at("encoder.es").to_number<int>(), 6);
    EXPECT_EQ(reader.sections().metrics.size(), 2U);
  }
}

TEST_F(ModularRun, CountsTheUpdatesOfEachComponentAndValidatesEachRoute) {
  RunConfig config = this->config("late");
  config.batch.global_size = world().size() * config.batch.micro_size.value();
  config.schedule.lr = 1e-30;  // weights stay as they are
  EXPECT_EQ(train_run(config).exit, Exit::ok);
  const boost::json::object updates = checkpoint::Reader{Files::system(), folder_ / "late/export/000000006"}
                                          .sections()
                                          .optimizer.at("component_steps")
                                          .as_object();
  const auto count_of = [&](const char* component) { return updates.at(component).to_number<int>(); };
  EXPECT_EQ(count_of("encoder.en"), count_of("decoder.es"));
  if (world().size() == 1) {  // one micro-batch a step
    EXPECT_EQ(count_of("encoder.en") + count_of("encoder.es"), 6);
    EXPECT_GT(count_of("encoder.en"), 0);
    EXPECT_GT(count_of("encoder.es"), 0);
  }
  const auto loss_of = [&](const RunConfig& of, const std::string& set) {
    EXPECT_EQ(train_run(of).exit, Exit::ok);
    return checkpoint::Reader{Files::system(), Path{of.run_dir} / "export/000000006"}
        .sections()
        .metrics.at(set)
        .at("loss")
        .to_number<double>();
  };
  // The same text by the route of the other direction has another loss.
  RunConfig wrong = config;
  wrong.run_dir = (folder_ / "wrong way").string();
  wrong.validation.sets[1].corpus = wrong.data.corpora[0].name;
  config.run_dir = (folder_ / "right way").string();
  EXPECT_NE(loss_of(config, "valid.es"), loss_of(wrong, "valid.es"));
}

TEST_F(ModularRun, TheEndOfEachCorpusIsASetOfItsOwn) {
  const auto metrics_of = [&](const std::string& name, const auto& change) {
    RunConfig config = this->config(name);
    config.validation.sets.clear();
    config.data.split = data::SplitConfig{.train = 0.7, .validation = 0.3};
    config.sharding.zero_stage = 3;
    change(config);
    EXPECT_EQ(train_run(config).exit, Exit::ok);
    return checkpoint::Reader{Files::system(), Path{config.run_dir} / "export/000000006"}.sections().metrics;
  };
  const auto loss_of = [](const boost::json::object& metrics, const char* set) {
    return metrics.at(set).at("loss").to_number<double>();
  };
  const boost::json::object everywhere = metrics_of("everywhere", [](RunConfig&) {});
  EXPECT_EQ(everywhere.size(), 2U);
  EXPECT_NE(loss_of(everywhere, "validation.verses"), loss_of(everywhere, "validation.back"));
  const boost::json::object placed = metrics_of("placed", [](RunConfig& config) {
    config.placement.tasks = {{"verses", {0}}, {"back", {world().size() - 1}}};
    if (world().size() > 2) config.placement.tasks["verses"] = {0, 1};
    for (int rank = 2; rank + 1 < world().size(); ++rank) config.placement.tasks["verses"].push_back(rank);
  });
  for (const char* set : {"validation.verses", "validation.back"})
    EXPECT_NEAR(loss_of(placed, set), loss_of(everywhere, set), 1e-4) << set;
  const boost::json::object late =
      metrics_of("late", [](RunConfig& config) { config.data.corpora[1].start = config::Period{.count = 1000}; });
  EXPECT_GT(loss_of(late, "validation.back"), loss_of(everywhere, "validation.back")) << "it is not learned";
}

TEST_F(ModularRun, StacksThatAllTasksShareGiveTheBitsOfThePlainModel) {
  const RunConfig stacked = config("stacked", Share::all, Share::all);
  RunConfig plain = config("plain", Share::all, Share::all);
  for (spec::SideConfig* side : {&plain.model.encoder, &plain.model.decoder}) {
    side->stacks.clear();
    side->layers = 2;
  }
  EXPECT_EQ(train_run(stacked).exit, Exit::ok);
  EXPECT_EQ(train_run(plain).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder_ / "stacked/export/000000006"), bits_of(folder_ / "plain/export/000000006"));
  EXPECT_EQ(train_run(config("modular")).exit, Exit::ok);
  EXPECT_NE(bits_of(folder_ / "modular/export/000000006"), bits_of(folder_ / "plain/export/000000006"));
}

TEST_F(ModularRun, ElasticSumsGiveTheBitsOfOneRankTooThroughTheData) {
  RunConfig config = this->config("elastic");
  config.sharding.reduction = plan::Reduction::elastic;
  config.batch.global_size = 12 * config.batch.micro_size.value();
  EXPECT_EQ(train_run(config).exit, Exit::ok);
  config.run_dir = (folder_ / "again").string();
  config.sharding.zero_stage = 3;
  EXPECT_EQ(train_run(config, {}, Hierarchy::one_rank_a_node).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder_ / "again/export/000000006"), bits_of(folder_ / "elastic/export/000000006"));
}

TEST_F(ModularRun, GoesOnOnAnotherNumberOfRanksToTheSameBits) {
  const auto config_of = [&](const std::string& name) {
    RunConfig config = this->config(name);
    config.sharding.reduction = plan::Reduction::elastic;
    config.sharding.zero_stage = 2;
    config.batch.global_size = 12 * config.batch.micro_size.value();
    return config;
  };
  train_on(1, config_of("one"));
  train_on(world().size(), config_of("more"), stop_behind(1, 0));
  train_on(1, config_of("more"), stop_behind(4, 0));
  train_on(world().size(), config_of("more"));
  const auto values = [&](const char* run) {
    const checkpoint::Reader reader{Files::system(), folder_ / run / "export/000000006"};
    std::map<std::string, std::vector<float>> all;
    for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
      all[parameter.name] = reader.read_parameter(parameter.name);
    return all;
  };
  EXPECT_EQ(values("more"), values("one"));
}

TEST_F(ModularRun, ALanguageIsAddedByTrainingItsComponentsAlone) {
  EXPECT_EQ(train_run(config("old")).exit, Exit::ok);
  RunConfig config = this->config("added");
  config.data.corpora[0].languages = {"en", "xx"};
  config.data.corpora[1].languages = {"xx", "en"};
  config.init_from = plan::InitFrom{
      {{.from = (folder_ / "old/export/000000006").string(), .components = {"embeddings", "encoder", "decoder"}}}};
  config.freeze = {"embeddings", "encoder.all", "decoder.all", "encoder.en", "decoder.en"};
  const train::TrainOptions options = opens_checkpoints();
  const auto refused = [&] { return refusal(Fault::config, [&] { (void)train_run(config, options); }); };
  EXPECT_THAT(refused(), testing::HasSubstr("allow_new"));
  config.init_from->sources[0].allow_new = true;
  config.init_from->sources[0].components = {"encoder.yy"};
  config.run_dir = (folder_ / "wrong").string();
  EXPECT_THAT(refused(), testing::HasSubstr("no component encoder.yy"));
  config.init_from->sources[0].components = {"embeddings", "encoder.all", "decoder.all", "encoder.en", "decoder.en"};
  config.run_dir = (folder_ / "new").string();
  EXPECT_EQ(train_run(config, options).exit, Exit::ok);
  const checkpoint::Reader before{Files::system(), folder_ / "old/export/000000006"},
      after{Files::system(), folder_ / "new/export/000000006"};
  int kept = 0, added = 0;
  for (const checkpoint::Reader::Parameter& parameter : after.parameters()) {
    const bool is_new = parameter.name.starts_with("encoder.xx/") || parameter.name.starts_with("decoder.xx/");
    (is_new ? added : kept) += 1;
    if (is_new) {
      EXPECT_THROW((void)before.read_parameter(parameter.name), Error);
    } else {
      EXPECT_EQ(after.read_parameter(parameter.name), before.read_parameter(parameter.name)) << parameter.name;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(added, 20);
}

TEST_F(ModularRun, ALanguageIsAddedWithItsOwnEmbeddings) {
  const auto by_language = [&](const std::string& name) {
    RunConfig config = this->config(name);
    config.model.embeddings.share = spec::EmbeddingShare::language;
    config.model.tie_embeddings = false;
    config.model.tie_inputs = true;
    return config;
  };
  EXPECT_EQ(train_run(by_language("old")).exit, Exit::ok);
  RunConfig config = by_language("added");
  add_language(config, {"embeddings.en", "output.en", "encoder.all", "decoder.all", "encoder.en", "decoder.en"});
  const train::TrainOptions options = opens_checkpoints();
  EXPECT_EQ(train_run(config, options).exit, Exit::ok);
  const checkpoint::Reader before{Files::system(), folder_ / "old/export/000000006"},
      after{Files::system(), folder_ / "added/export/000000006"};
  for (const char* name : {"embeddings.en/weight", "output.en/weight", "output.en/bias"})
    EXPECT_EQ(after.read_parameter(name), before.read_parameter(name)) << name;
  for (const char* name : {"embeddings.xx/weight", "output.xx/weight", "output.xx/bias"}) {
    EXPECT_THROW((void)before.read_parameter(name), Error) << name;
    EXPECT_THAT(after.read_parameter(name), testing::Contains(testing::Ne(0.0F))) << name;
  }
}

/// Some components have adapters, which are trained alone; the way back has none at all.
TEST_F(ModularRun, AdaptersOfComponentsAreTrainedAlone) {
  EXPECT_EQ(train_run(config("old")).exit, Exit::ok);
  const Path old = folder_ / "old/export/000000006";
  const train::TrainOptions options = opens_checkpoints();
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(stage);
    const auto config_of = [&](const std::string& run) {
      RunConfig config = staged(run, stage);
      config.init_from = plan::InitFrom{{{.from = old.string()}}};
      config.lora =
          spec::LoraConfig{.rank = 2, .dropout = 0.1, .targets = std::vector<std::string>{"encoder.en", "decoder.es"}};
      return config;
    };
    EXPECT_EQ(train_run(config_of("whole"), options).exit, Exit::ok);
    EXPECT_EQ(train_run(config_of("parts"), stop_behind(2, 0, options)).exit, Exit::stopped);
    EXPECT_EQ(train_run(config_of("parts"), options).exit, Exit::ok);
    const Path whole = folder_ / fmt::format("whole {}", stage) / "export/000000006";
    EXPECT_EQ(bits_of(folder_ / fmt::format("parts {}", stage) / "export/000000006"), bits_of(whole));
    const checkpoint::Reader before{Files::system(), old}, after{Files::system(), whole};
    std::map<std::string, int> adapters;  // by component
    for (const checkpoint::Reader::Parameter& parameter : after.parameters()) {
      const std::vector<float> values = after.read_parameter(parameter.name);
      if (parameter.name.find("/lora_") == std::string::npos) {
        EXPECT_EQ(values, before.read_parameter(parameter.name)) << parameter.name;
      } else {
        ++adapters[parameter.name.substr(0, parameter.name.find('/'))];
        EXPECT_THAT(values, testing::Contains(testing::Ne(0.0F))) << parameter.name;
      }
    }
    EXPECT_EQ(adapters, (std::map<std::string, int>{{"encoder.en", 2 * 4}, {"decoder.es", 2 * 7}}));
  }
}

TEST_F(ModularRun, AdaptersNeedTheWeightsNextToThem) {
  EXPECT_EQ(train_run(config("old")).exit, Exit::ok);
  RunConfig config = this->config("run");
  config.init_from = plan::InitFrom{{{.from = (folder_ / "old/export/000000006").string()}}};
  config.lora = spec::LoraConfig{.rank = 2};
  const train::TrainOptions options = opens_checkpoints();
  EXPECT_EQ(train_run(config, stop_behind(2, 0, options)).exit, Exit::stopped);
  config.data.corpora[0].languages = {"en", "xx"};
  config.data.corpora[1].languages = {"xx", "en"};
  const auto refused = [&](const train::TrainOptions& how) {
    return refusal(Fault::config, [&] { (void)train_run(config, how); });
  };
  train::TrainOptions other_tasks = options;
  other_tasks.allow_changes = {"tasks"};
  EXPECT_THAT(refused(other_tasks), testing::HasSubstr("the run has no decoder.xx, encoder.xx"));
  config.run_dir = (folder_ / "new").string();
  config.init_from->sources[0].allow_new = true;
  EXPECT_THAT(refused(options), testing::HasSubstr("init_from has no encoder.xx/layer_0/"));
}

TEST_F(ModularRun, FrozenComponentsKeepTheirBitsWhileOthersLearn) {
  RunConfig config = this->config("frozen");
  config.freeze = {"encoder.en", "encoder.all", "decoder/*"};
  const auto initial = [&] {
    RunConfig none = config;
    none.run_dir = (folder_ / "initial").string();
    none.schedule.lr = 1e-30;
    return none;
  }();
  EXPECT_EQ(train_run(config).exit, Exit::ok);
  EXPECT_EQ(train_run(initial).exit, Exit::ok);
  const auto values = [&](const char* run, const std::string& name) {
    return checkpoint::Reader{Files::system(), folder_ / run / "export/000000006"}.read_parameter(name);
  };
  for (const char* name : {"encoder.en/layer_0/ffn/linear_0/weight", "encoder/layer_1/ffn/linear_0/weight"})
    EXPECT_EQ(values("frozen", name), values("initial", name)) << name;
  for (const char* name : {"encoder.es/layer_0/ffn/linear_0/weight", "decoder.en/layer_1/ffn/linear_0/weight"})
    EXPECT_NE(values("frozen", name), values("initial", name)) << name;
}

}  // namespace
}  // namespace argosy::test
