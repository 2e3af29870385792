#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "mpi/train/material.hpp"
#include "support/checkpoints.hpp"
#include "support/faulty_os.hpp"
#include "support/on_root.hpp"
#include "support/refusal.hpp"

/// Checkpoints written while training goes on.
namespace argosy::test {
namespace {

using plan::RunConfig;
using testing::Contains, testing::ElementsAre, testing::HasSubstr;
using train::TrainOptions, train::TrainReport;

/// A disk that takes its time: shards reach it only when they are not held.
class SlowOs : public FaultyOs {
 public:
  int fsync(int fd) override {
    std::error_code none;
    const bool shard = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd), none).extension() == ".h5";
    while (shard && held) Clock{}.sleep_s(0.001);
    return FaultyOs::fsync(fd);
  }
  std::atomic<bool> held = false;
};

bool is_last_rank() { return world().rank() == world().size() - 1; }

class Saves : public testing::Test {
 protected:
  void SetUp() override { config_ = Material::get().config(folder_ / "run"); }
  TrainReport train(const TrainOptions& options = {}) {
    return train_run(config_, options, Hierarchy::flat, Files{os_});
  }
  /// The save behind step `step` fails on the last rank.
  TrainOptions fail_the_save_of(std::int64_t step) {
    return behind(step, [this] {
      if (is_last_rank()) os_.fail(Call::fallocate, os_.count(Call::fallocate) + 1, ENOSPC);
    });
  }
  SharedFolder folder_;
  SlowOs os_;
  RunConfig config_;
};

/// From behind step 1 on the last rank holds its shards back, until `release` steps are done.
TrainOptions hold(SlowOs& os, std::int64_t release) {
  return {.after_step = [&os, release](const train::RunState& state, const train::StepResult&) {
    if (state.step == 1) os.held = is_last_rank();
    if (state.step == release) os.held = false;
  }};
}

TEST_F(Saves, HoldTheStateOfTheirStepThoughTrainingHasGoneOn) {
  config_.checkpoint.interval.count = 2;
  const TrainReport report = train(hold(os_, 4));  // the save of step 2 ends when step 4 has been taken
  EXPECT_EQ(report.figures.at("saves").at("saved"), 3) << "steps 2, 4 and the export";
  EXPECT_EQ(folder_.names("run/checkpoints"), (std::vector<std::string>{"000000002", "000000004"}));
  const RunConfig other = Material::get().config(folder_ / "stopped");
  (void)train_run(other, stop_behind(1, 0));  // the same run, saved while nothing else runs
  EXPECT_EQ(bits_of(folder_ / "run/checkpoints/000000002"), bits_of(folder_ / "stopped/checkpoints/000000002"));
  EXPECT_NE(bits_of(folder_ / "run/checkpoints/000000004"), bits_of(folder_ / "stopped/checkpoints/000000002"));
}

TEST_F(Saves, ThatAreDueWhileOneIsBeingWrittenWaitOrAreLeftOut) {
  config_.checkpoint.interval.count = 1;
  config_.checkpoint.on_busy = plan::OnBusy::skip;
  const TrainReport report = train(hold(os_, 4));
  const auto& saves = report.figures.at("saves");
  EXPECT_EQ(saves.at("left_out").to_number<int>() + saves.at("saved").to_number<int>(), 6);
  EXPECT_GE(saves.at("left_out").to_number<int>(), 2) << "of steps 2 and 3 at least";
  EXPECT_EQ(folder_.names("run/export"), (std::vector<std::string>{"000000006"}));
}

TEST_F(Saves, OfTheBestWaitWhereOthersAreLeftOut) {
  config_.checkpoint.interval.count = 1;
  config_.checkpoint.on_busy = plan::OnBusy::skip;
  config_.validation.interval.count = 2;
  config_.validation.keep_best = {plan::Metric::loss};
  std::jthread release;
  TrainOptions options = hold(os_, 6);
  options.after_step = [&, held = options.after_step](const train::RunState& state, const train::StepResult& result) {
    held(state, result);
    if (state.step != 2) return;  // the first validation finds the best so far
    release = std::jthread([&] {
      Clock{}.sleep_s(0.2);
      os_.held = false;
    });
  };
  (void)train(options);
  EXPECT_THAT(folder_.names("run/checkpoints"), Contains("000000002"));
}

TEST_F(Saves, ThatFailAreToldAtTheNextStepAndTrainingGoesOn) {
  config_.checkpoint.interval.count = 2;
  const TrainReport report = train(fail_the_save_of(2));
  EXPECT_EQ(report.exit, Exit::ok);
  EXPECT_EQ(report.figures.at("saves").at("failed"), 1);
  EXPECT_EQ(folder_.names("run/checkpoints"), (std::vector<std::string>{"000000004"}));
  EXPECT_EQ(folder_.names("run/export"), (std::vector<std::string>{"000000006"}));
}

/// Saves every step, judges at 2, 4 and 6, each time the best so far, and keeps one next to the best.
void keep_the_best(RunConfig& config) {
  config.checkpoint.interval.count = 1;
  config.checkpoint.max_checkpoints = 1;
  config.validation.interval.count = 2;
  config.validation.keep_best = {plan::Metric::loss};
}

std::vector<std::int64_t> steps_kept_by(const Path& checkpoint) {
  const checkpoint::Reader reader{Files::system(), checkpoint};
  std::vector<std::int64_t> steps;
  for (const auto& step : reader.sections().best.at("keep").as_array()) steps.push_back(step.as_int64());
  return steps;
}

TEST_F(Saves, OfTheBestThatFailLeaveTheBestBeforeThem) {
  keep_the_best(config_);
  EXPECT_EQ(train(fail_the_save_of(4)).figures.at("saves").at("failed"), 1);
  EXPECT_THAT(folder_.names("run/checkpoints"), ElementsAre("000000002", "000000005"));
  EXPECT_THAT(steps_kept_by(folder_ / "run/checkpoints/000000005"), ElementsAre(2));
  EXPECT_THAT(steps_kept_by(folder_ / "run/export/000000006"), ElementsAre(6)) << "the export stands for the best";
}

TEST_F(Saves, OfTheBestThatFailAreForgottenByTheNextStart) {
  keep_the_best(config_);
  const TrainOptions failing = fail_the_save_of(4);
  config_.schedule.length.count = 9;
  config_.validation.interval.count = 4;  // 4 fails; the next validation is the one at 8, of the next start
  (void)train({.after_step = [&](const train::RunState& state, const train::StepResult& result) {
    failing.after_step(state, result);
    if (state.step == 6 && world().rank() == 0) std::raise(SIGTERM);
  }});
  EXPECT_EQ(checkpoint::Reader(Files::system(), folder_ / "run/checkpoints/000000007").sections().best.count("keep"), 0)
      << "nothing that exists is the best";
  world().barrier("looked");
  config_.validation.interval.count = 8;
  (void)train();
  EXPECT_THAT(folder_.names("run/checkpoints"), Contains("000000008"));
}

TEST_F(Saves, OfARunBegunFromAnotherHoldTheBestThatTheOtherOwed) {
  config_.checkpoint.max_checkpoints = 1;
  config_.validation.interval.count = 2;
  config_.validation.keep_best = {plan::Metric::loss};
  (void)train(stop_behind(1, 0));  // the validation of step 2 is due and left to the next start
  const Path from = folder_ / "run/checkpoints/000000002";
  config_.run_dir = (folder_ / "other").string();
  config_.schedule.lr = 3;  // nothing is better than step 2
  config_.checkpoint.interval.count = 1;
  (void)train({.resume = from.string()});
  EXPECT_THAT(folder_.names("other/checkpoints"), ElementsAre("000000002", "000000005"));
}

TEST_F(Saves, ThatFailTooOftenInARowEndTheRun) {
  config_.checkpoint.interval.count = 1;
  config_.checkpoint.max_failed_saves = 2;
  if (is_last_rank()) os_.fail(Call::fallocate, 1, ENOSPC, true);
  const Error error = error_of([&] { (void)train(); });
  EXPECT_EQ(exit_code(error.fault()), Exit::io);
  EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("2 failed saves in a row"), HasSubstr("ENOSPC")));
}

TEST_F(Saves, OfARunThatIsToldToStopMustNotFail) {
  if (is_last_rank()) os_.fail(Call::fallocate, 1, ENOSPC, true);
  EXPECT_EQ(exit_code(error_of([&] { (void)train(stop_behind(1, 0)); }).fault()), Exit::io);
}

TEST_F(Saves, OfARunThatEndsByAnErrorLeaveItsCheckpointsWhole) {
  config_.checkpoint.interval.count = 2;
  config_.optimizer.skip.abs = 1e-9;  // every step is skipped
  config_.optimizer.skip.max_consecutive = 3;
  EXPECT_EQ(error_of([&] { (void)train(); }).fault(), Fault::numeric);
  for (const std::string& name : folder_.names("run/checkpoints"))
    if (name[0] != '.') checkpoint::Reader(Files::system(), folder_ / "run/checkpoints" / name).verify();
}

TEST_F(Saves, AreLookedAtAsCloselyAsConfigured) {
  for (const plan::Verify verify : {plan::Verify::none, plan::Verify::touched, plan::Verify::full}) {
    const std::string name = fmt::format("looked{}", static_cast<int>(verify));
    config_ = Material::get().config(folder_ / name);
    config_.checkpoint.interval.count = 2;
    config_.checkpoint.verify = verify;
    (void)train(stop_behind(3, 0));
    const Path newest = folder_ / name / "checkpoints/000000003";
    on_root([&] { flip(newest / checkpoint::shard_name(0, world().size()), map_of(newest, 0).datasets[0].offset); });
    EXPECT_EQ(train().figures.at("steps"), verify == plan::Verify::none ? 3 : 4) << name;
  }
}

TEST_F(Saves, OfWeightsAloneStandBesideWhatTrainingResumesFrom) {
  config_.checkpoint.export_state = plan::ExportState::weights;
  config_.checkpoint.export_interval.count = 3;
  (void)train();
  EXPECT_EQ(folder_.names("run/export"), (std::vector<std::string>{"000000003", "000000006"}));
  EXPECT_EQ(folder_.names("run/checkpoints"), (std::vector<std::string>{"000000006"}));
  const checkpoint::Reader weights{Files::system(), folder_ / "run/export/000000006"},
      whole{Files::system(), folder_ / "run/checkpoints/000000006"};
  EXPECT_FALSE(weights.has_optimizer_state());
  EXPECT_TRUE(whole.has_optimizer_state());
  for (const auto& parameter : whole.parameters())
    EXPECT_EQ(weights.read_parameter(parameter.name), whole.read_parameter(parameter.name)) << parameter.name;
  world().barrier("read");
  // Killed before the export: the next start makes it.
  on_root([&] { Files::system().remove_tree(folder_ / "run/export/000000006"); });
  EXPECT_EQ(train().figures.at("steps"), 0);
  EXPECT_EQ(folder_.names("run/export"), (std::vector<std::string>{"000000003", "000000006"}));
  checkpoint::Reader(Files::system(), folder_ / "run/export/000000006").verify();
}

}  // namespace
}  // namespace argosy::test
