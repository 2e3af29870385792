#include "train/run_state.hpp"

#include "support/forged_numbers.hpp"
#include "support/refusal.hpp"
#include "support/temp_folder.hpp"
#include "train/early_stop.hpp"
#include "train/other_tasks.hpp"

namespace argosy::train {
namespace {

/// A checkpoint that says of a run all that there is to say.
class StoredState : public testing::Test {
 protected:
  StoredState() {
    config.validation.keep_best = {plan::Metric::loss};
    config.validation.early_stop.emplace();
    state.step = 12;
    state.cursor = {{.epoch = 1, .pool = 2, .steps = 9, .tgt_tokens = 80, .drawn = {5, 6}, .owed = {0.5, -0.5}}, 3};
    state.epoch = 1.25;
    state.best_loss = 2.5;
    state.best_step = 10;
    state.guard.mean_norm = 0.5;
    state.window.truncated = 7;
    state.window.corpora = {{.nll = 1.5, .tgt_tokens = 3}, {.nll = 2.25, .tgt_tokens = 4}};
    state.metrics = {{"valid", {{"loss", 2.5}}}};
    state.validations = {{"early_stop", {{"metric", "loss"}, {"value", 2.5}, {"step", 10}, {"stalled", 1}}},
                         {"kept", {{"loss", {{"value", 2.5}, {"step", 10}}}}},
                         {"keep", {10}},
                         {"advice", {{"left", {5, 3, 0, 2, 1}}, {"nll", 8.5}, {"tgt_tokens", 4.0}}}};
    test::write_checkpoint(Files::system(), directory, test::tiny_units(), partition::Layout{{1}}, 1);
    const checkpoint::Sections s = sections();
    test::edit_manifest(directory, [&](boost::json::object& document) {
      document["float_bits"].as_object().clear();
      document["step"] = 12;
      const std::pair<const char*, boost::json::object> parts[] = {{"optimizer", s.optimizer}, {"schedule", s.schedule},
                                                                   {"counters", s.counters},   {"data", s.data},
                                                                   {"metrics", s.metrics},     {"best", s.best}};
      for (const auto& [section, part] : parts) document[section] = part;
    });
  }
  [[nodiscard]] checkpoint::Sections sections() const { return sections_of(config, {}, state); }
  void take_up() const {
    const checkpoint::Reader reader{Files::system(), directory};
    const RunState taken = state_of(reader);
    EXPECT_GE(taken.step, 0);
    EXPECT_GE(taken.cursor.pool.epoch, 0) << taken.cursor.pool.pool;
    EXPECT_GE(taken.cursor.step, 0);
    EXPECT_GE(taken.epoch, 0);
    EXPECT_GE(taken.guard.mean_norm, 0);
    const ValidationHistory validations{config.validation, taken.validations};
    const optim::SkipGuard guard{config.optimizer.skip, taken.guard};
    static_cast<void>(check_resumable(reader.sections(), reader.sections(), {}, "here"));
  }

  test::TempFolder folder;
  Path directory = folder / "000000012";
  plan::RunConfig config;
  RunState state;
};

TEST_F(StoredState, ComesBack) {
  const RunState taken = state_of(checkpoint::Reader{Files::system(), directory});
  EXPECT_EQ(taken.step, 12);
  EXPECT_EQ(taken.cursor, state.cursor);
  EXPECT_EQ(taken.window, state.window);
  EXPECT_EQ(taken.validations, state.validations);
  take_up();
}

TEST_F(StoredState, StepsOfAnEpochThatEarlierVersionsCountedComeBack) {
  test::edit_manifest(directory, [](auto& document) {
    boost::json::object& data = document["data"].as_object();
    for (const char* key : {"pool", "pool_step", "pool_begin"}) data.erase(key);
    data["epoch_step"] = 70;
  });
  const RunState taken = state_of(checkpoint::Reader{Files::system(), directory});
  EXPECT_EQ(taken.cursor, (data::Cursor{{.epoch = 1}, 70}));
}

TEST_F(StoredState, ForgedNumbersAreRefusedOrHarmless) {
  test::forge_numbers(directory, [&] { take_up(); });
}

TEST_F(StoredState, NumbersBelowZeroAreDamageAtTheirPlace) {
  const std::string text = Files::system().read_text(directory / checkpoint::manifest_name);
  const std::pair<const char*, const char*> numbers[] = {{"data", "epoch"},      {"data", "pool_step"},
                                                         {"data", "epoch_done"}, {"counters", "tgt_tokens"},
                                                         {"optimizer", "step"},  {"best", "step"}};
  for (const auto& [section, key] : numbers) {
    test::edit_manifest(directory, [&](auto& document) { document[section].as_object()[key] = -5; });
    const std::string said = test::refusal(Fault::corrupt, [&] { take_up(); });
    EXPECT_TRUE(test::says(said, fmt::format(" at /{}/{}: expected ", section, key), ", got -5;"));
    Files::system().publish(directory / checkpoint::manifest_name, text);
  }
}

TEST_F(StoredState, WithoutAPartIsDamage) {
  for (const char* section : {"optimizer", "counters", "data", "best", "schedule"}) {
    const std::string text = Files::system().read_text(directory / checkpoint::manifest_name);
    test::edit_manifest(directory, [&](auto& document) { document.erase(section); });
    test::refusal(Fault::corrupt, [&] { take_up(); });
    Files::system().publish(directory / checkpoint::manifest_name, text);
  }
}

TEST_F(StoredState, PromptsReadInAnotherWayAreAnotherModel) {
  checkpoint::Sections changed = sections();
  changed.model.at("config").as_object()["prefix_lm"] = true;
  EXPECT_TRUE(test::says(
      test::refusal(Fault::config,
                    [&] { (void)check_resumable(sections(), changed, std::vector<std::string>{"model"}, "here"); }),
      "model was", "prefix_lm"));
}

TEST_F(StoredState, TheWidthsOfARunAreStoredAsTheModelDecidesThem) {
  const checkpoint::Sections before = sections();
  config.model.encoder.position = spec::Position::t5;
  EXPECT_EQ(sections().data.at("batch").at("width_multiple"), 8);
  EXPECT_TRUE(before.data.at("batch").at("width_multiple").is_null());
}

/// Checkpoints before model.qkv_bias and the others that came with it.
TEST_F(StoredState, AModelFromBeforeAKeyWasThereIsTheSameModel) {
  checkpoint::Sections saved = sections();
  boost::json::object& model = saved.model.at("config").as_object();
  for (const char* later : {"rope_scaling", "norm_epsilon", "qkv_bias", "embedding_scale", "prefix_lm",
                            "allow_encoder_without_positions", "neftune_alpha", "position_shift_max"})
    EXPECT_EQ(model.erase(later), 1U) << later;
  EXPECT_TRUE(check_resumable(saved, sections(), {}, "here").empty());
}

/// Checkpoints before loss.error_norm_truncation.
TEST_F(StoredState, ALossFromBeforeAKeyWasThereIsTheSameLoss) {
  const checkpoint::Sections saved = sections();
  EXPECT_FALSE(saved.optimizer.at("loss").as_object().contains("error_norm_truncation"));
  EXPECT_FALSE(saved.optimizer.at("loss").as_object().contains("error_norm_truncation_after"));
  config.loss.error_norm_truncation = 1.2;
  EXPECT_TRUE(test::says(test::refusal(Fault::config, [&] { (void)check_resumable(saved, sections(), {}, "here"); }),
                         "loss was", "1.2"));
}

TEST(OtherTasks, GoOnWhereTheyStoodAndNewOnesBegin) {
  spec::ModelConfig config;
  config.width = 8;
  config.ff = 12;
  config.heads = 2;
  config.encoder.stacks = {{1, spec::Share::source}};
  config.decoder.stacks = {{1, spec::Share::target}};
  const spec::Sharing was{.tasks = {{"en-fr", "en", "fr"}, {"fr-en", "fr", "en"}, {"en-de", "en", "de"}}},
      now{.tasks = {{"en-pl", "en", "pl"}, {"en-de", "en", "de"}, {"fr-en", "fr", "en"}}};
  EXPECT_EQ(difference_of(was, now), "added en-pl; removed en-fr");
  EXPECT_EQ(difference_of(was, was), "");
  spec::Sharing grouped = was;
  grouped.groups["all"] = {"en", "fr", "de"};
  EXPECT_EQ(difference_of(was, grouped), "other groups");
  std::swap(grouped.tasks[0], grouped.tasks[1]);
  grouped.groups.clear();
  EXPECT_EQ(difference_of(was, grouped), "in another order");

  RunState state;
  state.cursor.pool.drawn = {10, 20, 30};
  state.cursor.pool.owed = {0.25, 0.5, -0.75};
  state.component_updates = {{"decoder.fr", 4}, {"decoder.en", 5}};
  state.window.corpora.resize(3);
  const spec::ModelSpec spec(spec::resolve(config, 100), now);
  EXPECT_THAT(take_tasks(state, was, spec), testing::ElementsAre("components that begin with random values: decoder.pl",
                                                                 "components that are left out: decoder.fr"));
  EXPECT_THAT(state.cursor.pool.drawn, testing::ElementsAre(0, 30, 20));
  EXPECT_THAT(state.cursor.pool.owed, testing::ElementsAre(0, -0.75, 0.5));
  EXPECT_THAT(state.component_updates, testing::ElementsAre(testing::Pair("decoder.en", 5)));
  EXPECT_TRUE(state.window.corpora.empty());
}

}  // namespace
}  // namespace argosy::train
