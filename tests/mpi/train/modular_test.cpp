#include <gmock/gmock.h>

#include "checkpoint/shard_file.hpp"
#include "model/stored_model.hpp"
#include "model/stored_spec.hpp"
#include "mpi/train/material.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"

/// Runs whose tasks share only parts of the model.
namespace argosy::test {
namespace {

using plan::RunConfig;
using spec::Share;

class ModularRun : public testing::Test {
 protected:
  /// English to Spanish, and back; each language has an encoder block, and a decoder block, of its own.
  [[nodiscard]] RunConfig config(const std::string& name, Share source = Share::source,
                                 Share target = Share::target) const {
    RunConfig config = with_two_corpora(folder_);
    config.run_dir = (folder_ / name).string();
    config.data.shards = (folder_ / "shards").string();
    config.batch.pool = 200;
    config.data.corpora[1].name = "back";
    std::swap(config.data.corpora[1].source, *config.data.corpora[1].target);
    config.data.corpora[0].languages = {"en", "es"};
    config.data.corpora[1].languages = {"es", "en"};
    config.validation.sets[0].corpus = config.data.corpora[0].name;
    config.validation.sets.push_back(config.validation.sets[0]);
    config.validation.sets[1].corpus = "back";
    std::swap(config.validation.sets[1].source, *config.validation.sets[1].target);
    config.model.encoder.layers.reset();
    config.model.decoder.layers.reset();
    config.model.encoder.stacks = {{.layers = 1, .share = source}, {.layers = 1}};
    config.model.decoder.stacks = {{.layers = 1}, {.layers = 1, .share = target}};
    config.batch.global_size = 4 * world().size() * config.batch.micro_size.value();
    return config;
  }
  /// The Spanish of the run "old" becomes a new language, and what is kept of that run is frozen.
  void add_language(RunConfig& config, const std::vector<std::string>& kept) const {
    config.data.corpora[0].languages = {"en", "xx"};
    config.data.corpora[1].languages = {"xx", "en"};
    config.init_from = plan::InitFrom{
        {{.from = (folder_ / "old/export/000000006").string(), .components = {kept}, .allow_new = true}}};
    config.freeze = kept;
  }
  [[nodiscard]] static train::TrainOptions opens_checkpoints() {
    train::TrainOptions options;
    options.open_model = [](comm::Context&, const std::string& name) {
      return model::whole_model(std::make_unique<checkpoint::Reader>(Files::system(), name));
    };
    return options;
  }
  SharedFolder folder_;
};

TEST_F(ModularRun, StoppedAndResumedGivesTheBitsOfAnUninterruptedRun) {
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(stage);
    const auto config_of = [&](const std::string& run) {
      RunConfig config = this->config(fmt::format("{} {}", run, stage));
      config.sharding.zero_stage = stage;
      config.validation.metrics = {plan::Metric::loss, plan::Metric::bleu};
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

/// Each language has its own tokenizer.
class TokenizersOfLanguages : public ModularRun {
 protected:
  [[nodiscard]] RunConfig own(const std::string& name) const {
    RunConfig config = this->config(name);
    config.data.tokenizer = (folder_ / "{language}.model").string();
    config.data.tokenizer_training = data::TokenizerTraining{.vocab_size = 300};
    config.model.embeddings.share = spec::EmbeddingShare::language;
    return config;
  }
  [[nodiscard]] std::size_t tokenizers_in(const char* checkpoint) const {
    const checkpoint::Reader reader{Files::system(), folder_ / checkpoint};
    return reader.sections().model.at("tokenizer_digest").as_object().size();
  }
};

TEST_F(TokenizersOfLanguages, AreStoredAndTheRunGoesOn) {
  RunConfig config = own("whole");
  config.validation.metrics = {plan::Metric::loss, plan::Metric::bleu};
  EXPECT_EQ(train_run(config).exit, Exit::ok);
  config.run_dir = (folder_ / "parts").string();
  EXPECT_EQ(train_run(config, stop_behind(2, 0)).exit, Exit::stopped);
  EXPECT_EQ(train_run(config).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder_ / "parts/export/000000006"), bits_of(folder_ / "whole/export/000000006"));
  EXPECT_EQ(tokenizers_in("whole/export/000000006"), 2U);
  const checkpoint::Reader reader{Files::system(), folder_ / "whole/export/000000006"};
  const model::StoredModel task = model::stored_model(reader, config.data.corpora[0].name);
  for (const auto& [side, language] : {std::pair{data::Side::source, "en"}, {data::Side::target, "es"}})
    EXPECT_EQ(task.tokenizer.side(side).model_bytes(),
              Files::system().read_text(folder_ / fmt::format("{}.model", language)));
}

TEST_F(TokenizersOfLanguages, OfACheckpointAreGivenAsOneFileAndNeedEmbeddingsOfTheirOwn) {
  EXPECT_EQ(train_run(own("first")).exit, Exit::ok);
  RunConfig config = own("second");
  config.data.tokenizer_training.reset();
  config.data.tokenizer = (folder_ / "first/export/000000006/tokenizer.model").string();
  config.data.shards = (folder_ / "other shards").string();
  EXPECT_EQ(train_run(config).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder_ / "second/export/000000006"), bits_of(folder_ / "first/export/000000006"));
  config.model.embeddings.share = spec::EmbeddingShare::all;
  config.run_dir = (folder_ / "third").string();
  EXPECT_THAT(
      refusal(Fault::config, [&] { (void)train_run(config); }),
      testing::HasSubstr("data.tokenizer: expected one tokenizer, since all languages have the same embeddings"));
}

TEST_F(TokenizersOfLanguages, ALanguageBringsItsOwn) {
  EXPECT_EQ(train_run(own("old")).exit, Exit::ok);
  RunConfig config = own("added");
  add_language(config, {"embeddings.en", "encoder.all", "decoder.all", "encoder.en", "decoder.en"});
  const train::TrainOptions options = opens_checkpoints();
  EXPECT_EQ(train_run(config, options).exit, Exit::ok);
  const checkpoint::Reader before{Files::system(), folder_ / "old/export/000000006"},
      after{Files::system(), folder_ / "added/export/000000006"};
  EXPECT_EQ(after.read_parameter("embeddings.en/weight"), before.read_parameter("embeddings.en/weight"));
  // Embeddings of another English tokenizer are not taken.
  config.data.tokenizer_training->vocab_size = 290;
  config.data.tokenizer = (folder_ / "other {language}.model").string();
  config.run_dir = (folder_ / "refused").string();
  EXPECT_THAT(refusal(Fault::config, [&] { (void)train_run(config, options); }),
              testing::HasSubstr("its embeddings of the language en belong to another tokenizer"));
}

TEST_F(TokenizersOfLanguages, ARunGoesOnWithALanguageMoreAndNotWithAnotherTokenizer) {
  const RunConfig config = own("run");
  EXPECT_EQ(train_run(config, stop_behind(3, 0)).exit, Exit::stopped);
  RunConfig more = config;
  more.data.corpora.push_back(config.data.corpora[0]);
  more.data.corpora[2].name = "more";
  more.data.corpora[2].languages = {"en", "xx"};
  const train::TrainOptions other_tasks{.allow_changes = {"tasks"}};
  RunConfig other = more;
  other.data.tokenizer_training->sample_lines = 100;
  other.data.tokenizer = (folder_ / "other {language}.model").string();
  EXPECT_THAT(refusal(Fault::config, [&] { (void)train_run(other, other_tasks); }),
              testing::HasSubstr("data.tokenizer was"));
  EXPECT_EQ(train_run(more, other_tasks).exit, Exit::ok);
  EXPECT_EQ(tokenizers_in("run/export/000000006"), 3U);
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

/// A tensor of a unit (its weights, a moment) in one piece.
std::vector<float> tensor_of(const Path& checkpoint, const spec::Unit& unit, std::string_view tensor) {
  const partition::FlatSpace space(unit.flat(), partition::Layout{});
  std::vector<float> numbers(static_cast<std::size_t>(space.padded_size()));
  const checkpoint::UnitState state{
      unit.name, &space, {{{std::string(tensor)}, std::as_writable_bytes(std::span{numbers})}}};
  checkpoint::Reader{Files::system(), checkpoint}.read_state(std::span{&state, 1}, 0);
  return numbers;
}

class OtherTasks : public ModularRun {
 protected:
  /// Also English to a third language, the text of which is Spanish.
  [[nodiscard]] RunConfig of_three(RunConfig config) const {
    config.data.shards = (folder_ / "shards of three").string();
    config.data.corpora.push_back(config.data.corpora[0]);
    config.data.corpora[2].name = "more";
    config.data.corpora[2].languages = {"en", "xx"};
    return config;
  }
  [[nodiscard]] static std::vector<spec::Unit> units_of(const Path& checkpoint) {
    const checkpoint::Reader reader{Files::system(), checkpoint};
    return model::stored_spec(reader, *model::stored_config(reader),
                              reader.sections().model.at("vocab_size").to_number<std::int64_t>())
        .units;
  }
  [[nodiscard]] std::string history_of(const char* checkpoint) const {
    return config::text_of(checkpoint::Reader{Files::system(), folder_ / checkpoint}.sections().history);
  }
  const train::TrainOptions other_tasks_{.allow_changes = {"tasks"}};
};

TEST_F(OtherTasks, ARunGoesOnWithOneMoreAndNewComponentsBeginAnew) {
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(stage);
    const std::string name = fmt::format("run {}", stage);
    RunConfig config = this->config(name);
    config.sharding.zero_stage = stage;
    config.checkpoint.export_state = plan::ExportState::full;
    EXPECT_EQ(train_run(config, stop_behind(3, 0)).exit, Exit::stopped);
    RunConfig more = of_three(config);
    EXPECT_THAT(refusal(Fault::config, [&] { (void)train_run(more); }),
                testing::AllOf(testing::HasSubstr("the tasks have changed: added more"),
                               testing::HasSubstr("--allow-change tasks")));
    more.schedule.length.count = 4;  // takes over the state, and saves it
    EXPECT_EQ(train_run(more, other_tasks_).exit, Exit::ok);
    const Path before = folder_ / name / "checkpoints/000000004", after = folder_ / name / "export/000000004";
    int kept = 0, added = 0;
    for (const spec::Unit& unit : units_of(after)) {
      SCOPED_TRACE(unit.name);
      if (unit.name.starts_with("decoder.xx")) {
        ++added;
        EXPECT_THAT(tensor_of(after, unit, "exp_avg"), testing::Each(0.0F));
        EXPECT_THAT(tensor_of(after, unit, spec::weights_tensor), testing::Contains(testing::Ne(0.0F)));
      } else {
        ++kept;
        for (const char* tensor : {"exp_avg", "exp_avg_sq"})
          EXPECT_EQ(tensor_of(after, unit, tensor), tensor_of(before, unit, tensor)) << tensor;
        EXPECT_EQ(tensor_of(after, unit, spec::weights_tensor), tensor_of(before, unit, spec::weights_tensor));
      }
    }
    EXPECT_GT(added, 0);
    EXPECT_GT(kept, added);
    more.schedule.length.count = 8;
    EXPECT_EQ(train_run(more, stop_behind(5, 0, other_tasks_)).exit, Exit::stopped);
    EXPECT_EQ(train_run(more).exit, Exit::ok) << "later starts need no option";
    const std::string last = name + "/export/000000008";
    EXPECT_THAT(history_of(last.c_str()), testing::AllOf(testing::HasSubstr("tasks: added more"),
                                                         testing::HasSubstr("begin with random values: decoder.xx")));
    const boost::json::object updates =
        checkpoint::Reader{Files::system(), folder_ / last}.sections().optimizer.at("component_steps").as_object();
    EXPECT_EQ(updates.at("encoder.en").to_number<int>(), 8);
    EXPECT_LE(updates.at("decoder.xx").to_number<int>(), 4);
  }
}

TEST_F(OtherTasks, ARunGoesOnWithOneLess) {
  RunConfig config = of_three(this->config("run"));
  EXPECT_EQ(train_run(config, stop_behind(3, 0)).exit, Exit::stopped);
  RunConfig less = this->config("run");
  EXPECT_EQ(train_run(less, other_tasks_).exit, Exit::ok);
  EXPECT_THAT(history_of("run/export/000000006"),
              testing::AllOf(testing::HasSubstr("tasks: removed more"), testing::HasSubstr("left out: decoder.xx")));
  const checkpoint::Reader reader{Files::system(), folder_ / "run/export/000000006"};
  EXPECT_FALSE(reader.sections().optimizer.at("component_steps").as_object().contains("decoder.xx"));
  for (const checkpoint::Reader::Parameter& parameter : reader.parameters())
    EXPECT_FALSE(parameter.name.starts_with("decoder.xx")) << parameter.name;
}

/// The damaged one has the component, and the one before it has not.
TEST_F(OtherTasks, NothingOfADamagedCheckpointIsTaken) {
  RunConfig config = this->config("run");
  EXPECT_EQ(train_run(config, stop_behind(1, 0)).exit, Exit::stopped);
  const RunConfig more = of_three(config);
  EXPECT_EQ(train_run(more, stop_behind(3, 0, other_tasks_)).exit, Exit::stopped);
  RunConfig fresh = more;
  fresh.run_dir = (folder_ / "fresh").string();
  fresh.schedule.length.count = 2;
  fresh.schedule.lr = 1e-30;
  EXPECT_EQ(train_run(fresh).exit, Exit::ok);
  if (world().rank() == 0) {
    const Path shard = folder_ / "run/checkpoints/000000004" / checkpoint::shard_name(0, world().size());
    std::string bytes = Files::system().read_text(shard);
    bytes[bytes.size() / 2] ^= 1;
    Files::system().write_atomically(shard, bytes);
  }
  world().barrier("damaged");
  RunConfig again = more;
  again.checkpoint.verify = plan::Verify::full;
  again.schedule.length.count = 2;
  EXPECT_EQ(train_run(again, other_tasks_).exit, Exit::ok);
  int added = 0;
  for (const spec::Unit& unit : units_of(folder_ / "run/export/000000002")) {
    if (!unit.name.starts_with("decoder.xx")) continue;
    ++added;
    EXPECT_THAT(tensor_of(folder_ / "run/export/000000002", unit, spec::weights_tensor),
                testing::Pointwise(testing::FloatNear(1e-20F),
                                   tensor_of(folder_ / "fresh/export/000000002", unit, spec::weights_tensor)));
  }
  EXPECT_GT(added, 0);
}

}  // namespace
}  // namespace argosy::test
