#include <gtest/gtest.h>

#include <map>

#include "core/error.hpp"
#include "mpi/train/material.hpp"
#include "support/checkpoints.hpp"
#include "support/pairwise.hpp"

/// Runs that are broken off and go on, against runs that are not.
namespace argosy::test {
namespace {

using plan::RunConfig;
using train::TrainOptions, train::TrainReport;

/// What each step said of itself; a step that is taken again takes the place of the first.
struct Steps {
  /// `then` follows behind each step.
  [[nodiscard]] TrainOptions recorded(TrainOptions options = {}) {
    auto then = std::move(options.after_step);
    options.after_step = [this, then](const train::RunState& state, const train::StepResult& result) {
      losses[state.step] = result.loss_sum;
      norms[state.step] = fmt::format("{:a} {}", result.grad_norm, state.tgt_tokens);
      if (then) then(state, result);
    };
    return options;
  }
  std::map<std::int64_t, double> losses;
  std::map<std::int64_t, std::string> norms;  // of the gradient, with the count of tgt_tokens
};

struct Killed {};
void be_killed() { throw Killed{}; }  // whatever was being written

/// What a checkpoint holds for one rank of `layout`: weights, moments and running means.
Toy state_of(const checkpoint::Reader& reader, const partition::Layout& layout, int canonical_rank) {
  test::Units units;
  for (std::size_t u = 0; u < reader.spaces().size(); ++u)
    units.emplace_back(reader.unit_names()[u], reader.spaces()[u].params());
  Toy state{units, layout, canonical_rank, true};
  reader.read_state(state.states(), canonical_rank);
  return state;
}

/// Digests of that, whatever the number of ranks that stored it.
std::vector<std::string> state_bits(const Path& directory) {
  Toy state = state_of({Files::system(), directory}, {}, 0);
  std::vector<std::string> digests;
  for (const checkpoint::UnitState& unit : state.states())
    for (const checkpoint::TensorShard& tensor : unit.tensors) digests.push_back(digest_of(tensor.bytes).hex());
  return digests;
}

class ResumedRun : public testing::Test {
 protected:
  /// Log lines fall between checkpoints.
  [[nodiscard]] RunConfig config(const std::string& name) const {
    RunConfig config = Material::get().config(folder_ / name);
    config.telemetry.log_interval.count = 4;
    config.optimizer.ema = 0.9;
    return config;
  }
  /// Two runs have left the same in the checkpoint `last` and in their metrics.
  void expect_same_end(const std::string& run, const std::string& other, const Path& last) const {
    EXPECT_EQ(bits_of(folder_ / run / last), bits_of(folder_ / other / last));
    EXPECT_EQ(sections_text(folder_ / run / last), sections_text(folder_ / other / last));
    EXPECT_EQ(metrics_of(folder_ / run), metrics_of(folder_ / other));
  }
  SharedFolder folder_;
};

struct Resumption {
  plan::PrecisionMode mode = plan::PrecisionMode::fp32;
  int stage = 1, accumulation = 1;
  double dropout = 0;
};

/// On two ranks all 24, elsewhere every pair of choices.
std::vector<Resumption> resumptions() {
  const std::vector<int> sizes{2, 3, 2, 2};
  std::vector<Resumption> all;
  for (const std::vector<int>& at : world().size() == 2 ? product(sizes) : pairwise(sizes)) {
    all.push_back({.mode = at[0] == 0 ? plan::PrecisionMode::fp32 : plan::PrecisionMode::bf16,
                   .stage = 1 + at[1],
                   .accumulation = 1 + at[2],
                   .dropout = at[3] == 0 ? 0 : 0.1});
  }
  return all;
}

TEST_F(ResumedRun, StoppedOrKilledItHasTheBitsOfAnUndisturbedOne) {
  for (const Resumption& each : resumptions()) {
    const std::string name = fmt::format("{} stage {} A{} dropout {}", boost::describe::enum_to_string(each.mode, "?"),
                                         each.stage, each.accumulation, each.dropout);
    SCOPED_TRACE(name);
    const auto config_of = [&](const std::string& run) {
      RunConfig config = this->config(name + run);
      config.precision.mode = each.mode;
      config.sharding.zero_stage = each.stage;
      config.batch.global_size = config.batch.micro_size.value() * each.accumulation * world().size();
      config.model.dropout = each.dropout;
      config.model.neftune_alpha = 50 * each.dropout;
      config.model.position_shift_max = each.dropout > 0 ? 40 : 0;
      config.loss.error_norm_truncation = each.dropout > 0 ? 1.005 : 0;
      config.loss.error_norm_truncation_after = each.dropout > 0 ? 4 : 0;
      config.checkpoint.interval.count = 2;
      return config;
    };
    const auto expect_same = [&](const std::string& run, const Steps& steps, const Steps& whole) {
      EXPECT_EQ(steps.losses, whole.losses);
      EXPECT_EQ(steps.norms, whole.norms);
      expect_same_end(name + run, name + "whole", "export/000000006");
    };
    Steps whole, parts, killed;
    EXPECT_EQ(train_run(config_of("whole"), whole.recorded()).figures.at("steps"), 6);

    EXPECT_EQ(train_run(config_of("parts"), parts.recorded(stop_behind(2, world().size() - 1))).exit, Exit::stopped);
    EXPECT_EQ(train_run(config_of("parts"), parts.recorded()).figures.at("steps"), 3);
    expect_same("parts", parts, whole);

    EXPECT_THROW((void)train_run(config_of("killed"), killed.recorded(behind(5, be_killed))), Killed);
    EXPECT_GE(train_run(config_of("killed"), killed.recorded()).figures.at("steps").as_int64(), 2);
    expect_same("killed", killed, whole);
  }
}

std::vector<optim::OptimizerConfig> optimizers() {
  std::vector<optim::OptimizerConfig> all;
  all.push_back({.type = optim::OptimizerType::adafactor});
  all.push_back({.type = optim::OptimizerType::muon});
  all.push_back({.update_clip = 0.5});
  for (const optim::StateType state : {optim::StateType::bf16, optim::StateType::int8, optim::StateType::int4})
    all.push_back({.state = state});
  return all;
}

TEST_F(ResumedRun, StoppedItGoesOnWithEveryOptimizer) {
  for (int i = 0; const optim::OptimizerConfig& optimizer : optimizers()) {
    const std::string name = fmt::format("optimizer {} ", i++);
    SCOPED_TRACE(name);
    const auto config_of = [&](const std::string& run) {
      RunConfig config = this->config(name + run);
      config.optimizer = optimizer;
      config.model.width = config.model.ff = 64;  // matrices of 4096 elements: codes
      config.sharding.zero_stage = 1 + i % 3;
      return config;
    };
    EXPECT_EQ(train_run(config_of("whole")).figures.at("steps"), 6);
    EXPECT_EQ(train_run(config_of("parts"), stop_behind(2, 0)).exit, Exit::stopped);
    EXPECT_EQ(train_run(config_of("parts")).figures.at("steps"), 3);
    expect_same_end(name + "parts", name + "whole", "export/000000006");
  }
}

TEST_F(ResumedRun, ElasticHasTheSameBitsOnAnyNumberOfRanksThatDividesItsMicroBatches) {
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(stage);
    const auto config_of = [&](const std::string& run) {
      RunConfig config = this->config(run + std::to_string(stage));
      config.batch.global_size = 12 * 250;
      config.batch.micro_size = 250;
      config.model.dropout = 0.1;
      config.sharding.zero_stage = stage;
      config.sharding.reduction = plan::Reduction::elastic;
      config.schedule.length.count = 12;
      config.validation.interval.count = 100;
      return config;
    };
    Steps alone, together;
    train_on(1, config_of("alone"), alone.recorded());
    int step = 1;
    for (const int ranks : {4, 1, 3, 2, 4, 3}) {
      train_on(std::min(ranks, world().size()), config_of("together"),
               together.recorded(step < 11 ? stop_behind(step, 0) : train::TrainOptions{}));
      if (world().rank() == 0) {
        EXPECT_EQ(together.losses.rbegin()->first, step + 1) << "each run takes two steps";
      }
      step += 2;
    }
    if (world().rank() == 0) {
      EXPECT_EQ(together.norms, alone.norms);
      for (const auto& [number, loss] : alone.losses) EXPECT_DOUBLE_EQ(together.losses.at(number), loss);
    }
    EXPECT_EQ(state_bits(folder_ / fmt::format("together{}/export/000000012", stage)),
              state_bits(folder_ / fmt::format("alone{}/export/000000012", stage)));
  }
}

TEST_F(ResumedRun, OnOtherRanksTakesTheSameExamplesAndStateIntoItsFirstStep) {
  constexpr double tolerance = 1e-6;  // of the loss: other orders of fp32 sums
  const auto config_of = [&](const std::string& run) {
    RunConfig config = this->config(run);
    config.model.dropout = 0.1;
    config.checkpoint.interval.count = 3;
    return config;
  };
  for (const bool grows : {false, true}) {
    const int before = grows ? 1 : world().size(), after = grows ? world().size() : 1;
    const std::string name = fmt::format("{} to {}{}", before, after, grows ? ", growing" : "");
    Steps whole, parts;
    train_on(before, config_of(name + " whole"), whole.recorded());
    train_on(before, config_of(name), parts.recorded(stop_behind(2, 0)));
    train_on(after, config_of(name), parts.recorded());
    if (world().rank() == 0) {
      EXPECT_NEAR(parts.losses.at(4), whole.losses.at(4), tolerance * whole.losses.at(4)) << name;
      EXPECT_NEAR(parts.losses.at(6), whole.losses.at(6), 100 * tolerance * whole.losses.at(6)) << name;
    }
  }
}

using Units = std::span<const checkpoint::UnitState>;
using Change = std::function<void(checkpoint::Sections&, Units)>;

/// Commits in `run_dir` the checkpoint in `from` as `change` leaves it. **Collective.**
void save_changed(const Path& from, const Path& run_dir, const Change& change) {
  const comm::Topology& where = topology(Hierarchy::flat);
  in_context(world(), where, Files::system(), [&](comm::Context& context) {
    const checkpoint::Reader reader{context.files, from};
    Toy state = state_of(reader, where.layout(), where.canonical_rank());
    const std::vector<checkpoint::UnitState> units = state.states();
    checkpoint::Sections sections = reader.sections();
    change(sections, units);
    checkpoint::Store store{context, run_dir, {}};
    const checkpoint::Attachment tokenizer{"tokenizer.model", reader.attachment("tokenizer.model")};
    EXPECT_TRUE(store.save(checkpoint::Kind::temp, reader.step(), units, sections, {&tokenizer, 1}).committed);
  });
}

void set_zero(std::span<float> tensor) { std::fill(tensor.begin(), tensor.end(), 0.0F); }

TEST_F(ResumedRun, TakesUpEverythingThatARunKnows) {
  // A member more is a case more below; threads, instructions and placement have tests of their own.
  const train::RunState state;
  [[maybe_unused]] const auto& [step, updates, component_updates, cursor, epoch, src_tokens, tgt_tokens, padded_tokens,
                                n_clips, guard, best_loss, best_step, owes_validation, metrics, threads, instructions,
                                placement, judged, window, history] = state;
  [[maybe_unused]] const auto& [mean_norm, taken, skipped, in_a_row] = guard;

  (void)train_run(config("run"), stop_behind(2, 0));
  const Path from = folder_ / "run/checkpoints/000000003";
  // Values that the next three steps neither overwrite nor arrive at by themselves.
  const Change mark = [](checkpoint::Sections& s, Units) {
    s.optimizer["step"] = 40;
    s.optimizer["component_steps"] = {{"decoder.fr", 30}};
    s.data["epoch"] = 1;
    s.data["pool_step"] = 1;
    s.data["pool_begin"] = {{"steps", 70}, {"tgt_tokens", 900}, {"drawn", {11}}, {"owed", {0.25}}};
    for (const char* count : {"src_tokens", "tgt_tokens", "padded_tokens", "n_clips", "skipped", "mean_norm_steps"})
      s.counters[count] = 1000 + s.counters[count].to_number<std::int64_t>();
    s.counters["mean_norm"] = 123.5;
    s.best["loss"] = 0.001;
    s.best["step"] = 2;
    s.best["advice"] = {{"left", {4, 0, 0, 1, 0}}, {"nll", 3.0}, {"tgt_tokens", 2.0}};
    s.metrics["before"] = {{"loss", 3.25}};
    s.history.push_back(boost::json::object{{"step", 1}, {"change", "one that was"}});
  };
  const std::string last = "export/000000006";
  const auto outcome = [&](const std::string& name, const Change& change) {
    save_changed(from, folder_ / name, [&](checkpoint::Sections& sections, Units units) {
      mark(sections, units);
      change(sections, units);
    });
    EXPECT_EQ(train_run(config(name)).figures.at("steps"), 3);
    std::string text = sections_text(folder_ / name / last);
    for (const std::string& digest : bits_of(folder_ / name / last)) text += " " + digest;
    for (const std::string& line : metrics_of(folder_ / name)) text += "\n" + line;
    return text;
  };
  const auto without = [](boost::json::object checkpoint::Sections::*section, const char* key) -> Change {
    return [=](checkpoint::Sections& s, Units) { (s.*section)[key] = 0; };
  };
  const std::string expected = outcome("marked", [](checkpoint::Sections&, Units) {});
  EXPECT_EQ(outcome("again", [](checkpoint::Sections&, Units) {}), expected);
  using checkpoint::Sections;
  std::vector<std::pair<std::string, Change>> dropped{
      {"updates", without(&Sections::optimizer, "step")},
      {"updates of components", [](Sections& s, Units) { s.optimizer.erase("component_steps"); }},
      {"epoch", without(&Sections::data, "epoch")},
      {"step in the pool", without(&Sections::data, "pool_step")},
      {"steps before the pool", [](Sections& s, Units) { s.data["pool_begin"].as_object()["steps"] = 0; }},
      {"tokens before the pool", [](Sections& s, Units) { s.data["pool_begin"].as_object()["tgt_tokens"] = 0; }},
      {"draws before the pool", [](Sections& s, Units) { s.data["pool_begin"].as_object()["drawn"] = {0}; }},
      {"draws owed", [](Sections& s, Units) { s.data["pool_begin"].as_object()["owed"] = {0}; }},
      {"window of the log", [](Sections& s, Units) { s.counters.erase("window"); }},
      {"best loss", without(&Sections::best, "loss")},
      {"best step", without(&Sections::best, "step")},
      {"validation that is due", [](Sections& s, Units) { s.best["validation_is_due"] = false; }},
      {"metrics", [](Sections& s, Units) { s.metrics.clear(); }},
      {"advice", [](Sections& s, Units) { s.best.erase("advice"); }},
      {"history", [](Sections& s, Units) { s.history.clear(); }},
      {"master weights", [](Sections&, Units units) { set_zero(units.front().tensor("master")); }},
      {"first moments", [](Sections&, Units units) { set_zero(units.back().tensor("exp_avg")); }},
      {"second moments", [](Sections&, Units units) { set_zero(units.back().tensor("exp_avg_sq")); }},
      {"running mean", [](Sections&, Units units) { set_zero(units.back().tensor("ema")); }},
  };
  for (const char* count :
       {"src_tokens", "tgt_tokens", "padded_tokens", "n_clips", "skipped", "mean_norm", "mean_norm_steps"})
    dropped.emplace_back(count, without(&Sections::counters, count));
  for (const auto& [name, change] : dropped) {
    const std::string text = outcome(name, change);
    EXPECT_TRUE(world().rank() != 0 || text != expected) << name;
  }
}

TEST_F(ResumedRun, ValidatesItsRunningMeanWhichChangesNothingElse) {
  const std::string last = "export/000000006";
  for (const auto& [stage, mode] :
       {std::pair{1, plan::PrecisionMode::fp32}, {1, plan::PrecisionMode::bf16}, {3, plan::PrecisionMode::fp32}}) {
    const auto config_of = [&](const std::string& run) {
      RunConfig config = this->config(fmt::format("{} {} {}", run, stage, static_cast<int>(mode)));
      config.sharding.zero_stage = stage;
      config.precision.mode = mode;
      return config;
    };
    const auto metrics = [&](const RunConfig& config) {
      return checkpoint::Reader{Files::system(), Path(config.run_dir) / last}.sections().metrics;
    };
    const RunConfig config = config_of("with");
    (void)train_run(config);
    RunConfig without = config_of("without");
    without.optimizer.ema = 0;
    (void)train_run(without);
    EXPECT_EQ(metrics(without).at("valid.en"), metrics(config).at("valid.en"));
    EXPECT_FALSE(metrics(without).contains("valid.en/ema"));
    EXPECT_NE(metrics(config).at("valid.en/ema"), metrics(config).at("valid.en"));
    checkpoint::Reader reader{Files::system(), Path(config.run_dir) / last};
    const checkpoint::Reader plain{Files::system(), Path(without.run_dir) / last};
    for (const auto& parameter : reader.parameters())
      EXPECT_EQ(reader.read_parameter(parameter.name), plain.read_parameter(parameter.name));
    EXPECT_FALSE(plain.has_ema());
    // The mean as weights of another run, whose last validation is due.
    const RunConfig mean = config_of("mean");
    save_changed(Path(config.run_dir) / last, mean.run_dir, [](checkpoint::Sections& s, Units units) {
      for (const checkpoint::UnitState& unit : units)
        std::ranges::copy(unit.tensor("ema"), unit.tensor("master").begin());
      s.best["validation_is_due"] = true;
    });
    EXPECT_EQ(train_run(mean).figures.at("steps"), 0);
    EXPECT_EQ(metrics(mean).at("valid.en"), metrics(config).at("valid.en/ema"));
  }
}

TEST_F(ResumedRun, CountsSkippedStepsInARowFromBefore) {
  RunConfig config = this->config("skips");
  config.optimizer.skip.abs = 1e-9;
  config.optimizer.skip.max_consecutive = 5;
  EXPECT_EQ(train_run(config, stop_behind(2, 0)).exit, Exit::stopped);
  Steps steps;
  EXPECT_THROW((void)train_run(config, steps.recorded()), Error);
  EXPECT_EQ(steps.losses.size(), 1U) << "step 4; the fifth in a row ends the run";
}

TEST_F(ResumedRun, EndsEarlyWhereAnUndisturbedOneDoes) {
  const auto config_of = [&](const std::string& run) {
    RunConfig config = this->config(run);
    config.validation.interval.count = 1;
    const auto& other = config.data.corpora[0];  // the first set decides
    config.validation.sets.push_back({.source = other.source, .target = other.target});
    config.validation.early_stop = {.metric = plan::Metric::perplexity, .patience = 3, .min_delta = 1e6};
    return config;
  };
  const TrainReport whole = train_run(config_of("whole"));
  EXPECT_EQ(whole.exit, Exit::ok);
  EXPECT_EQ(whole.figures.at("step"), 4) << "the first is the best, three are no better";
  EXPECT_TRUE(whole.figures.contains("early_stop"));
  for (const std::int64_t stop : {2, 3, 4}) {  // with its validation still due
    const std::string name = fmt::format("stopped at {}", stop);
    SCOPED_TRACE(name);
    EXPECT_EQ(train_run(config_of(name), stop_behind(stop, 0)).exit, Exit::stopped);
    const TrainReport rest = train_run(config_of(name));
    EXPECT_EQ(rest.exit, Exit::ok);
    EXPECT_EQ(rest.figures.at("steps"), 4 - stop);
    EXPECT_EQ(rest.figures.at("early_stop"), whole.figures.at("early_stop"));
    expect_same_end(name, "whole", "export/000000004");
  }
  EXPECT_EQ(train_run(config_of("whole")).figures.at("steps"), 0) << "it has ended";
  RunConfig patient = config_of("whole");
  patient.validation.early_stop->patience = 4;
  EXPECT_EQ(train_run(patient).figures.at("step"), 5);
}

TEST_F(ResumedRun, KeepsTheBestCheckpointBesideTheNewest) {
  RunConfig config = this->config("run");
  config.schedule.lr = 3;  // the loss soon rises
  config.schedule.warmup = config::Period{.count = 6};
  config.validation.interval.count = 1;
  config.validation.keep_best = {plan::Metric::perplexity};
  config.checkpoint.interval.count = 2;
  config.checkpoint.max_checkpoints = 1;
  const auto best_of = [&](const std::string& checkpoint) {
    const checkpoint::Reader reader{Files::system(), folder_ / "run" / checkpoint};
    return reader.sections().best.at("kept").at("perplexity").at("step").as_int64();
  };
  EXPECT_EQ(train_run(config, stop_behind(5, 0)).exit, Exit::stopped);
  const std::int64_t best = best_of("checkpoints/000000005");
  EXPECT_LT(best, 4);
  const std::string name = fmt::format("{:09}", best);
  EXPECT_EQ(folder_.names("run/checkpoints"),
            (std::vector<std::string>{name, "000000004",
                                      "000000005"}));  // a run that is told to stop leaves removing to the next start
  config.schedule.length.count = 9;
  (void)train_run(config);
  EXPECT_EQ(best_of("export/000000009"), best);
  // The next process keeps it as well, and for a while what it has loaded.
  EXPECT_EQ(folder_.names("run/checkpoints"), (std::vector<std::string>{name, "000000005", "000000008"}));
}

TEST_F(ResumedRun, KnowsHowManyEpochsAreOver) {
  RunConfig config = this->config("epochs");
  config.schedule.length = {.count = 1, .unit = config::Period::Unit::epoch};
  const std::int64_t steps = train_run(config).figures.at("steps").as_int64();
  EXPECT_GT(steps, 2);
  EXPECT_EQ(train_run(config).figures.at("steps"), 0);
  config.run_dir = (folder_ / "less").string();
  save_changed(folder_ / fmt::format("epochs/export/{:09}", steps), config.run_dir,
               [](checkpoint::Sections& s, Units) { s.data["epoch_done"] = 0.5; });
  EXPECT_GT(train_run(config).figures.at("steps").as_int64(), 0);
}

TEST_F(ResumedRun, RefusesTheSeedOfAnother) {
  (void)train_run(config("run"), stop_behind(1, 0));
  save_changed(folder_ / "run/checkpoints/000000002", folder_ / "other",
               [](checkpoint::Sections& s, Units) { s.data["seed"] = 12; });
  EXPECT_THROW((void)train_run(config("other")), Error);
}

}  // namespace
}  // namespace argosy::test
