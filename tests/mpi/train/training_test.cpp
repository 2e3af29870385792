#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <tuple>

#include "mpi/train/material.hpp"
#include "support/refusal.hpp"
#include "train/run_parts.hpp"

namespace argosy::test {
namespace {

using plan::RunConfig;
using testing::HasSubstr;
using train::TrainOptions, train::TrainReport;

class WholeTraining : public testing::TestWithParam<plan::PrecisionMode> {
 protected:
  [[nodiscard]] RunConfig config(const std::string& name) const {
    RunConfig config = Material::get().config(folder_ / name);
    config.precision.mode = GetParam();
    if (GetParam() != plan::PrecisionMode::bf16_pure) config.optimizer.ema = 0.9;
    return config;
  }
  SharedFolder folder_;
};

TEST_P(WholeTraining, TwiceFromTheSameSeedGivesTheSameBitsAndAnotherSeedOthers) {
  const TrainReport report = train_run(config("a"));
  EXPECT_EQ(report.exit, Exit::ok);
  EXPECT_EQ(report.figures.at("step"), 6);
  (void)train_run(config("b"));
  RunConfig other = config("c");
  other.seed = 12;
  (void)train_run(other);
  EXPECT_EQ(bits_of(folder_ / "a/export/000000006"), bits_of(folder_ / "b/export/000000006"));
  EXPECT_NE(bits_of(folder_ / "a/export/000000006"), bits_of(folder_ / "c/export/000000006"));
}

TEST_P(WholeTraining, StoppedAndResumedGivesTheBitsOfAnUninterruptedRun) {
  (void)train_run(config("whole"));
  const RunConfig interrupted = config("parts");
  // The wish of one rank, uttered behind step s, is heard in step s + 1, which is the last, or in a validation before
  // it.
  const TrainReport first = train_run(interrupted, stop_behind(1, world().size() - 1));
  EXPECT_EQ(first.exit, Exit::stopped);
  EXPECT_EQ(first.figures.at("step"), 2);
  EXPECT_EQ(first.figures.at("status"), "stopped");
  const TrainReport second = train_run(interrupted, stop_behind(3, 0));
  EXPECT_EQ(second.exit, Exit::stopped);
  EXPECT_EQ(second.figures.at("step"), 3);
  EXPECT_EQ(second.figures.at("steps"), 1);
  EXPECT_EQ(train_run(interrupted).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder_ / "parts/export/000000006"), bits_of(folder_ / "whole/export/000000006"));
  EXPECT_EQ(sections_text(folder_ / "parts/export/000000006"), sections_text(folder_ / "whole/export/000000006"));
  const TrainReport again = train_run(interrupted);
  EXPECT_EQ(again.exit, Exit::ok);
  EXPECT_EQ(again.figures.at("steps"), 0) << "the run is over";
}

TEST_P(WholeTraining, ResumesToTheSameBitsWithARelativeBiasAndLearnedPositions) {
  const auto with_positions = [&](const std::string& name) {
    RunConfig changed = config(name);
    changed.model.encoder.position = spec::Position::t5;
    changed.model.decoder.position = spec::Position::learned;
    changed.model.activation = spec::Activation::geglu;
    return changed;
  };
  (void)train_run(with_positions("whole"));
  EXPECT_EQ(train_run(with_positions("parts"), stop_behind(2, 0)).exit, Exit::stopped);
  EXPECT_EQ(train_run(with_positions("parts")).exit, Exit::ok);
  EXPECT_EQ(bits_of(folder_ / "parts/export/000000006"), bits_of(folder_ / "whole/export/000000006"));
}

TEST_P(WholeTraining, ResumesFromEveryIntervalAlike) {
  RunConfig config = this->config("every");
  config.checkpoint.interval.count = 1;
  config.checkpoint.max_checkpoints = 2;
  (void)train_run(config, stop_behind(4, 0));
  EXPECT_EQ(folder_.names("every/checkpoints"),
            (std::vector<std::string>{"000000003", "000000004",
                                      "000000005"}));  // a run that is told to stop leaves removing to the next start
  (void)train_run(config);
  EXPECT_EQ(folder_.names("every/checkpoints"), (std::vector<std::string>{"000000004", "000000005"}));
  (void)train_run(this->config("whole"));
  EXPECT_EQ(bits_of(folder_ / "every/export/000000006"), bits_of(folder_ / "whole/export/000000006"));
}

TEST_P(WholeTraining, HoldsWhatWasPlannedToTheByte) {
  for (const auto& [stage, scope] : {std::pair{1, plan::ShardingScope::world},
                                     {2, plan::ShardingScope::world},
                                     {3, plan::ShardingScope::world},
                                     {3, plan::ShardingScope::hybrid}}) {
    for (const Hierarchy hierarchy : {Hierarchy::flat, Hierarchy::uneven}) {
      const std::string name = fmt::format("{} stage {} {}", name_of(hierarchy), stage, static_cast<int>(scope));
      RunConfig config = this->config(name);
      config.sharding.zero_stage = stage;
      config.sharding.scope = scope;
      config.schedule.length.count = 3;
      const boost::json::object held = train_run(config, {}, hierarchy).figures.at("memory").as_object();
      EXPECT_EQ(held.at("state_bytes"), held.at("planned_state_bytes")) << name;
      EXPECT_EQ(held.at("state_off_plan_bytes"), 0) << name << ", on every rank";
      EXPECT_EQ(held.at("checkpoint_copy_bytes"), held.at("planned_checkpoint_copy_bytes")) << name;
      EXPECT_GT(held.at("activation_bytes").to_number<double>(), 0);
      EXPECT_GT(held.at("planned_activation_bytes").to_number<double>(), 0);
    }
  }
}

TEST_P(WholeTraining, ValidatesByTranslationsAlikeHoweverWeightsAreSharded) {
  using plan::Metric, plan::ShardingScope;
  const auto run = [&](int stage, ShardingScope scope, Hierarchy hierarchy) {
    const std::string name = fmt::format("{} stage {} {}", name_of(hierarchy), stage, static_cast<int>(scope));
    RunConfig config = this->config(name);
    config.sharding.zero_stage = stage;
    config.sharding.scope = scope;
    config.sharding.accumulation_order = plan::AccumulationOrder::breadth_first;  // sums nest alike
    config.schedule.lr = 1e-2;
    config.model.decoder.layers = 3;  // more units than buffers
    config.validation.metrics = {Metric::loss, Metric::bleu, Metric::chrf, Metric::ter};
    config.validation.keep_best = {Metric::ter};
    // Of one line: the other ranks have none.
    config.validation.sets.push_back({.source = folder_.write("one.en", "And God said\n").string(),
                                      .target = folder_.write("one.es", "Y dijo Dios\n").string()});
    EXPECT_EQ(train_run(config, {}, hierarchy).exit, Exit::ok);
    const Path last = folder_ / name / "export/000000006";
    const boost::json::object metrics = checkpoint::Reader{Files::system(), last}.sections().metrics;
    EXPECT_GT(metrics.at("valid.en").at("chrf").to_number<double>(), 0) << "translations of nothing show nothing";
    EXPECT_GT(metrics.at("valid.en").at("ter").to_number<double>(), 0);
    for (const boost::json::object& line : metrics_lines(folder_ / name)) {
      if (!line.contains("validation")) continue;
      EXPECT_EQ(line.at("signatures").as_object().size(), 3);
      EXPECT_TRUE(
          std::string(line.at("signatures").at("ter").as_string()).starts_with("TER|nrefs:1|case:lc|tok:tercom"));
    }
    return sections_text(last);
  };
  for (const Hierarchy hierarchy : {Hierarchy::flat, Hierarchy::uneven}) {
    const std::string first = run(1, ShardingScope::world, hierarchy);
    EXPECT_EQ(run(2, ShardingScope::world, hierarchy), first);
    EXPECT_EQ(run(3, ShardingScope::world, hierarchy), first);
    EXPECT_EQ(run(3, ShardingScope::hybrid, hierarchy), first);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WholeTraining,
                         testing::Values(plan::PrecisionMode::fp32, plan::PrecisionMode::bf16,
                                         plan::PrecisionMode::bf16_pure),
                         [](const auto& each) -> std::string {
                           return boost::describe::enum_to_string(each.param, "?");
                         });

class Reductions : public testing::Test {
 protected:
  /// Bits of a run with one rank a node.
  [[nodiscard]] std::vector<std::string> bits(const std::string& name, plan::Reduction reduction,
                                              plan::GradientWire wire = {}) const {
    RunConfig config = Material::get().config(folder_ / name);
    config.sharding.reduction = reduction;
    config.precision.gradient_wire = wire;
    EXPECT_EQ(train_run(config, {}, Hierarchy::one_rank_a_node).exit, Exit::ok);
    return bits_of(folder_ / name / "export/000000006");
  }
  SharedFolder folder_;
};

TEST_F(Reductions, AllTrainAndANarrowWireShows) {
  using plan::Reduction, plan::WireType;
  const auto exact = bits("exact", Reduction::exact),
             narrow = bits("narrow", Reduction::exact, {.outer = WireType::bf16});
  (void)bits("fast", Reduction::fast);
  (void)bits("elastic", Reduction::elastic);
  EXPECT_EQ(exact != narrow, world().size() > 1);
}

TEST(ShiftedPositions, AreThoseOfTrainingAloneAndNeedRoom) {
  const SharedFolder folder;
  const auto first_losses = [&](const std::string& name, std::int64_t most) {
    RunConfig config = Material::get().config(folder / name);
    config.model.max_positions = 500;
    config.model.position_shift_max = most;
    config.model.dropout = 0;
    config.schedule.lr = 1e-12;
    config.schedule.warmup->count = 0;
    config.schedule.length.count = 1;
    (void)train_run(config);
    std::map<std::string, double> losses;
    for (const boost::json::object& line : metrics_lines(folder / name)) {
      const bool is_step = line.contains("nll");
      losses[is_step ? "step" : "validation"] =
          (is_step ? line.at("nll") : line.at("figures").at("loss")).to_number<double>();
    }
    return losses;
  };
  const auto plain = first_losses("plain", 0), shifted = first_losses("shifted", 300);
  if (world().rank() == 0) {
    EXPECT_GT(std::abs(plain.at("step") - shifted.at("step")), 1e-4);
    EXPECT_NEAR(plain.at("validation"), shifted.at("validation"), 1e-6) << "weights of one tiny step";
  }
  RunConfig config = Material::get().config(folder / "narrow");
  config.model.max_positions = 500;
  config.model.position_shift_max = 490;
  EXPECT_TRUE(says(refusal(Fault::data, [&] { (void)train_run(config); }), "corpus verses, pair 1",
                   "pairs of at most 10 pieces", "model.position_shift_max"));
}

TEST_F(Reductions, KeysBecomeOptionsOfTheCollectives) {
  RunConfig config = Material::get().config("r");
  EXPECT_EQ(train::collectives_options(config).reduction, comm::Reduction::exact);
  EXPECT_EQ(train::collectives_options(config).wire_inner, DType::f32);
  config.sharding.reduction = plan::Reduction::fast;
  config.precision.gradient_wire.inner = plan::WireType::bf16;
  EXPECT_EQ(train::collectives_options(config).reduction, comm::Reduction::fast);
  EXPECT_EQ(train::collectives_options(config).wire_inner, DType::bf16);
  EXPECT_EQ(train::collectives_options(config).wire_outer, DType::f32);
}

TEST(Sharding, ARunChangesItsStageAtEachResumeAndKeepsItsBits) {
  const SharedFolder folder;
  RunConfig config = Material::get().config(folder / "whole");
  config.sharding.accumulation_order = plan::AccumulationOrder::breadth_first;
  config.model.tie_embeddings = false;
  const TrainReport whole = train_run(config, {}, Hierarchy::two_nodes);
  config.run_dir = (folder / "parts").string();
  const auto go_on = [&](int stage, plan::ShardingScope scope, std::int64_t until) {
    config.sharding.zero_stage = stage;
    config.sharding.scope = scope;
    config.sharding.recompute = stage == 3 ? plan::Recompute::block : plan::Recompute::none;
    return train_run(config, stop_behind(until, 0), Hierarchy::two_nodes);
  };
  EXPECT_EQ(go_on(3, plan::ShardingScope::hybrid, 0).exit, Exit::ok);  // nobody stops it
  EXPECT_EQ(bits_of(folder / "parts/export/000000006"), bits_of(folder / "whole/export/000000006"));
  config.run_dir = (folder / "more").string();
  EXPECT_EQ(go_on(2, plan::ShardingScope::world, 1).exit, Exit::stopped);
  EXPECT_EQ(go_on(3, plan::ShardingScope::world, 3).exit, Exit::stopped);
  const TrainReport last = go_on(3, plan::ShardingScope::hybrid, 9);
  EXPECT_EQ(last.figures.at("steps"), 3);
  EXPECT_EQ(bits_of(folder / "more/export/000000006"), bits_of(folder / "whole/export/000000006"));
  EXPECT_EQ(last.figures.at("validation"), whole.figures.at("validation"));
}

TEST(Schedules, InTokensOrEpochsTakeTheRateFromWhatHasBeenRead) {
  const SharedFolder folder;
  const Material& material = Material::get();
  const double steps = train_run(material.config(folder / "steps")).figures.at("tgt_tokens").to_number<double>() / 6;
  for (const auto& [unit, length, warmup] :
       {std::tuple{"t", std::floor(6 * steps), std::floor(2 * steps)}, {"e", 1.0, 0.25}}) {
    SCOPED_TRACE(unit);
    const RunConfig config =
        material.config(folder / unit, {fmt::format("schedule.length={}{}", length, unit),
                                        fmt::format("schedule.warmup={}{}", warmup, unit), "schedule.style=cosine"});
    EXPECT_EQ(train_run(config).exit, Exit::ok);
    const optim::Schedule schedule = plan::schedule_of(config);
    std::set<double> rates;
    for (const boost::json::object& line : metrics_lines(folder / unit)) {
      if (!line.contains("lr")) continue;
      const char* const read = *unit == 't' ? "total_tgt_tokens" : "epoch";
      rates.insert(line.at("lr").to_number<double>());
      EXPECT_NEAR(line.at("lr").to_number<double>(), optim::learning_rate(schedule, line.at(read).to_number<double>()),
                  1e-9)
          << line.at("step");
    }
    EXPECT_TRUE(world().rank() != 0 || rates.size() > 3);
  }
}

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    config_ = Material::get().config(folder_ / "run");
    (void)train_run(config_, stop_behind(1, 0));
  }
  void expect_refusal(const RunConfig& config, const std::string& text, const TrainOptions& options = {}) const {
    const Error error = error_of([&] { (void)train_run(config, options); });
    EXPECT_EQ(exit_code(error.fault()), Exit::usage) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
  /// How often older checkpoints of the run have been set aside.
  [[nodiscard]] auto times_set_aside() const {
    const std::vector<std::string> names = Files::system().list(folder_ / "run");
    return std::ranges::count_if(names, [](auto& name) { return name.starts_with("checkpoints.old-"); });
  }
  SharedFolder folder_;
  RunConfig config_;
};

TEST_F(Resume, RefusesWhatWouldMakeItAnotherRun) {
  const std::pair<const char*, void (*)(RunConfig&)> changes[] = {
      {"model", [](RunConfig& c) { c.model.ff = 64; }},
      {"--allow-change seed", [](RunConfig& c) { c.seed = 5; }},
      {"--allow-change batch", [](RunConfig& c) { c.batch.global_size = 1200; }},
      {"--allow-change precision", [](RunConfig& c) { c.precision.mode = plan::PrecisionMode::bf16; }},
      {"--allow-change loss", [](RunConfig& c) { c.loss.label_smoothing = 0.2; }},
      {"--allow-change data", [](RunConfig& c) { c.data.temperature = 2; }}};
  for (const auto& [said, change] : changes) {
    SCOPED_TRACE(said);
    RunConfig changed = config_;
    change(changed);
    expect_refusal(changed, said);
  }
}

TEST_F(Resume, AllowsWhatIsNamedAndRemembersWhatChanged) {
  RunConfig changed = config_;
  changed.loss.label_smoothing = 0.2;
  changed.schedule.lr = 1e-3;
  EXPECT_EQ(train_run(changed, {.allow_changes = {"loss"}}).exit, Exit::ok);
  const checkpoint::Reader reader{Files::system(), folder_ / "run/export/000000006"};
  const std::string history = config::text_of(reader.sections().history);
  EXPECT_THAT(history, HasSubstr("loss"));
  EXPECT_THAT(history, HasSubstr("schedule.lr: 0.001, was 0.002"));
}

TEST_F(Resume, AnotherOptimizerBeginsWithoutState) {
  RunConfig changed = config_;
  changed.optimizer.type = optim::OptimizerType::adafactor;
  expect_refusal(changed, "optimizer.type was \"adamw\" and is now \"adafactor\"");
  EXPECT_EQ(train_run(changed, {.allow_changes = {"optimizer.type"}}).exit, Exit::ok);
  const checkpoint::Reader reader{Files::system(), folder_ / "run/export/000000006"};
  EXPECT_THAT(config::text_of(reader.sections().history), HasSubstr("the optimizer, whose state begins anew"));
  EXPECT_LT(reader.sections().optimizer.at("step").as_int64(), 6) << "updates with AdamW count no more";
  RunConfig back = changed;
  back.optimizer = {.state = optim::StateType::int8};
  back.schedule.length.count = 8;
  EXPECT_EQ(train_run(back, {.allow_changes = {"optimizer.type", "optimizer.state"}}).exit, Exit::ok);
}

TEST_F(Resume, RefusesAnotherTokenizer) {
  RunConfig changed = config_;
  changed.data.tokenizer = (folder_ / "other.model").string();
  changed.data.shards = (folder_ / "shards").string();
  changed.data.tokenizer_training->vocab_size = 310;
  (void)data::run_preprocess(world(), Files::system(), Log{world().rank(), LogLevel::error},
                             {.data = changed.data, .cache = folder_ / "cache"});
  expect_refusal(changed, "data.tokenizer");
}

TEST_F(Resume, FromScratchSetsOldCheckpointsAside) {
  EXPECT_EQ(train_run(config_, {.from_scratch = true}).figures.at("steps"), 6);
  (void)train_run(Material::get().config(folder_ / "fresh"));
  EXPECT_EQ(bits_of(folder_ / "run/export/000000006"), bits_of(folder_ / "fresh/export/000000006"));
  EXPECT_EQ(times_set_aside(), 1);
}

void die() { throw Error{Fault::numeric, {.got = "the death that this test wants"}}; }

TEST_F(Resume, AJobThatBeginsAgainDoesSoOnceHoweverOftenItStarts) {
  const TrainOptions asked{.from_scratch = true, .request = "slurm.42.1700"};
  EXPECT_THROW((void)train_run(config_, behind(3, die, asked)), Error);
  EXPECT_EQ(times_set_aside(), 1);
  EXPECT_EQ(train_run(config_, stop_behind(2, 0, asked)).figures.at("steps"), 3)
      << "nothing was saved: once more from the beginning";
  EXPECT_EQ(times_set_aside(), 1) << "there was nothing to set aside";
  EXPECT_EQ(train_run(config_, asked).figures.at("steps"), 3) << "from the checkpoint it has made";
  EXPECT_EQ(times_set_aside(), 1);
  (void)train_run(Material::get().config(folder_ / "fresh"));
  EXPECT_EQ(bits_of(folder_ / "run/export/000000006"), bits_of(folder_ / "fresh/export/000000006"));
  EXPECT_EQ(train_run(config_, {.from_scratch = true, .request = "slurm.42.1800"}).figures.at("steps"), 6)
      << "another job";
  EXPECT_EQ(times_set_aside(), 2);
}

TEST_F(Resume, AJobThatBeginsFromACheckpointGoesOnFromNoOther) {
  RunConfig other = Material::get().config(folder_ / "other");
  other.seed = config_.seed;
  (void)train_run(other, stop_behind(3, 0));
  const TrainOptions asked{
      .resume = (folder_ / "run/checkpoints/000000002").string(), .abandon_newer = true, .request = "slurm.42.1700"};
  EXPECT_THROW((void)train_run(other, behind(3, die, asked)), Error);
  EXPECT_EQ(train_run(other, stop_behind(4, 0, asked)).figures.at("steps"), 3)
      << "from step 2 again, not from its own step 3";
  EXPECT_EQ(train_run(other, asked).figures.at("steps"), 1);
}

TEST_F(Resume, TakesACheckpointByPathUnlessNewerOnesStandBeside) {
  RunConfig longer = config_;
  longer.run_dir = (folder_ / "other").string();
  const std::string path = (folder_ / "run/checkpoints/000000002").string();
  EXPECT_EQ(train_run(longer, {.resume = path}).figures.at("steps"), 4);
  (void)train_run(config_, stop_behind(3, 0));
  expect_refusal(config_, "000000003", {.resume = path});
}

TEST_F(Resume, AStopWhereAnExportIsDueLeavesTheExport) {
  config_.run_dir = (folder_ / "exports").string();
  config_.checkpoint.export_interval.count = 3;
  EXPECT_EQ(train_run(config_, stop_behind(2, 0)).exit, Exit::stopped);
  EXPECT_TRUE(Files::system().exists(folder_ / "exports/export/000000003/MANIFEST.json"));
  EXPECT_EQ(train_run(config_).figures.at("steps"), 3);
}

TEST_F(Resume, AStopFileStopsTheRun) {
  config_.stop.file = (folder_ / "stop").string();
  const TrainReport report = train_run(config_, {.after_step = [&](const train::RunState& state, const auto&) {
                                         if (state.step != 4 || world().rank() != 0) return;
                                         Files::system().write_atomically(folder_ / "stop", std::string_view{});
                                         Clock{}.sleep_s(1.1);  // it is looked for once a second
                                       }});
  EXPECT_EQ(report.exit, Exit::stopped);
  EXPECT_EQ(report.figures.at("step"), 5);
  EXPECT_THROW((void)train_run(config_), Error) << "it is still there";
}

}  // namespace
}  // namespace argosy::test
