#include <gmock/gmock.h>

#include "checkpoint/shard_file.hpp"
#include "model/stored_spec.hpp"
#include "mpi/train/modular_run.hpp"
#include "support/checkpoints.hpp"
#include "support/refusal.hpp"

/// Languages with tokenizers of their own, and runs that go on with other tasks.
namespace argosy::test {
namespace {

using plan::RunConfig;

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
  const auto with_room = [&](const std::string& name) {
    RunConfig config = own(name);
    config.model.vocab_size = 310;
    config.model.vocab_multiple = 1;
    return config;
  };
  EXPECT_EQ(train_run(with_room("old")).exit, Exit::ok);
  RunConfig config = with_room("added");
  config.data.tokenizer_training->vocab_size = 310;  // of the new language: the others have theirs
  add_language(config, {"embeddings.en", "encoder.all", "decoder.all", "encoder.en", "decoder.en"});
  const train::TrainOptions options = opens_checkpoints();
  EXPECT_EQ(train_run(config, options).exit, Exit::ok);
  const checkpoint::Reader before{Files::system(), folder_ / "old/export/000000006"},
      after{Files::system(), folder_ / "added/export/000000006"};
  EXPECT_EQ(after.read_parameter("embeddings.en/weight"), before.read_parameter("embeddings.en/weight"));
  const model::StoredModel task = model::stored_model(after, config.data.corpora[0].name);
  EXPECT_EQ(std::pair(task.config.vocab_size, task.tokenizer.side(data::Side::target).spelled_ids()),
            std::pair(std::optional<std::int64_t>(310), std::int64_t{310}));
  // A tokenizer for which there is no room.
  config.data.tokenizer_training->vocab_size = 311;
  config.data.tokenizer = (folder_ / "large {language}.model").string();
  config.run_dir = (folder_ / "too large").string();
  EXPECT_THAT(refusal(Fault::config, [&] { (void)train_run(config, options); }),
              testing::HasSubstr("model.vocab_size (310) is below the tokenizer's number of pieces (311)"));
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
    more.schedule.length.count = 3;  // takes over the state, and saves it
    EXPECT_EQ(train_run(more, other_tasks_).exit, Exit::ok);
    const Path before = folder_ / name / "checkpoints/000000003", after = folder_ / name / "export/000000003";
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
    EXPECT_LE(updates.at("decoder.xx").to_number<int>(), 5);
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
    const Path shard = folder_ / "run/checkpoints/000000003" / checkpoint::shard_name(0, world().size());
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
