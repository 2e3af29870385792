#include "telemetry/metrics.hpp"

#include <gmock/gmock.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <sstream>

#include "config/describe.hpp"
#include "support/captured.hpp"
#include "support/faulty_os.hpp"
#include "support/fixed_clock.hpp"
#include "support/temp_folder.hpp"
#include "support/terminal.hpp"

namespace argosy::telemetry {
namespace {

using test::stderr_of;
using testing::AllOf, testing::HasSubstr, testing::Not;

const FlopShape shape{.decoder_layers = 1, .width = 4, .ff = 8, .heads = 2, .kv_heads = 2, .head_size = 2, .vocab = 10};

StepMetrics step_of(std::int64_t step) {
  StepMetrics m{.step = step,
                .fraction_done = static_cast<double>(step) / 100,
                .epoch = static_cast<double>(step) / 4,
                .loss = 3,
                .nll = 2,
                .lr = 1e-3,
                .grad_norm = 1.5,
                .n_clips = 7,
                .n_skipped = 1,
                .src_tokens = 90,
                .tgt_tokens = 100,
                .padded_tokens = 200,
                .total_tgt_tokens = 100 * step,
                .work = {},
                .step_s = 0.5,
                .data_wait_s = 0.01,
                .memory_bytes = 3 << 20};
  m.work.add_row(0, 10);
  return m;
}

/// The steps from `first` to `last`.
std::vector<StepMetrics> steps_of(std::int64_t first, std::int64_t last) {
  std::vector<StepMetrics> steps;
  for (std::int64_t step = first; step <= last; ++step) steps.push_back(step_of(step));
  return steps;
}

class MetricsTest : public testing::Test {
 protected:
  std::string run(Metrics::Setup setup, const std::vector<StepMetrics>& steps) {
    setup.shape = shape;
    return stderr_of([&] {
      const Log log;
      Metrics metrics(setup, files, folder.path(), log, clock);
      for (const StepMetrics& step : steps) metrics.add(step);
    });
  }
  std::vector<boost::json::value> lines() {
    std::vector<boost::json::value> all;
    std::string_view text = text_ = files.read_text(folder / "metrics.jsonl");
    for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
      all.push_back(boost::json::parse(text.substr(0, end)));
    return all;
  }
  std::vector<std::int64_t> steps_logged() {
    std::vector<std::int64_t> steps;
    for (const auto& line : lines()) steps.push_back(line.at("step").as_int64());
    return steps;
  }
  /// The only file of events.
  Path event_file() {
    const auto names = files.list(folder / "tensorboard");
    EXPECT_EQ(names.size(), 1U);
    return folder / "tensorboard" / names.at(0);
  }
  static Metrics::Setup setup(config::Period interval, std::int64_t offset = 0) {
    Metrics::Setup s;
    s.config.log_interval = interval;
    s.config.log_offset = offset;
    return s;
  }
  static Metrics::Setup setup_with_tensorboard() {
    Metrics::Setup s = setup({.count = 1});
    s.config.tensorboard = true;
    return s;
  }

  test::TempFolder folder;
  test::FixedClock clock;
  Files files = Files::system();

 private:
  std::string text_;
};

TEST_F(MetricsTest, ReportsMeansOverTheInterval) {
  StepMetrics a = step_of(1), b = step_of(2);
  b.tgt_tokens = 300;
  b.loss = 5;
  b.nll = 4;
  b.step_s = 1.5;
  b.data_wait_s = 0.03;
  b.clipped = true;
  Metrics::Setup s = setup({.count = 2});
  s.ranks = 2;
  s.peak_flops = 1e6;
  const std::string log = run(s, {a, b});
  ASSERT_EQ(lines().size(), 1U);
  const boost::json::value line = lines()[0];
  const auto number = [&](const char* key) { return line.at(key).to_number<double>(); };
  EXPECT_EQ(line.at("step"), 2);
  const std::pair<const char*, double> figures[] = {{"loss", (3.0 * 100 + 5.0 * 300) / 400},
                                                    {"nll", 3.5},
                                                    {"perplexity", std::exp(3.5)},
                                                    {"src_tokens_per_s", 180 / 2.0},
                                                    {"tgt_tokens_per_s", 400 / 2.0},
                                                    {"padded_tokens_per_s", 400 / 2.0},
                                                    {"step_ms", 1000},
                                                    {"data_wait_ms", 20},
                                                    {"clip_frac", 0.5}};
  for (const auto& [key, figure] : figures) EXPECT_DOUBLE_EQ(number(key), figure) << key;
  EXPECT_DOUBLE_EQ(number("eta_s"), 98.0) << "2 of 100 steps took 2 s";
  Work work;
  work.add_row(0, 10);
  const Flops one = flops_of(shape, work);
  EXPECT_NEAR(number("tflops_per_rank"), one.causal * 2 / 2.0 / 2 / 1e12, 1e-20);
  EXPECT_DOUBLE_EQ(number("mfu"), one.causal / 2e6);
  EXPECT_DOUBLE_EQ(number("mfu_full"), one.full / 2e6);
  EXPECT_GT(number("mfu_full"), number("mfu"));
  EXPECT_EQ(line.at("n_clips"), 7);
  EXPECT_EQ(line.at("skipped"), 1);
  EXPECT_EQ(line.at("memory_bytes"), 3 << 20);
  EXPECT_THAT(
      log, HasSubstr(fmt::format("step 2 (2.0 %) · loss 4.5000 · ppl 33.12 · lr 1.000e-03 · grad norm 1.500 · "
                                 "tgt_tokens/s 200 · TFLOP/s/rank {:.3g} · MFU {:.1f} % · memory 3 MiB · ETA 1m 38s\n",
                                 one.causal / 2e12, one.causal / 2e4)));
}

TEST_F(MetricsTest, TheLogLineLeavesOutWhatIsUnknownAndHasGibibytes) {
  EXPECT_THAT(run(setup({.count = 1}), {step_of(1)}), AllOf(HasSubstr("TFLOP/s/rank"), Not(HasSubstr("MFU"))));
  EXPECT_TRUE(lines()[0].at("mfu").is_null());
  StepMetrics bare = step_of(1);
  bare.work = {};
  bare.memory_bytes = 0;
  bare.fraction_done = 0;
  EXPECT_THAT(run(setup({.count = 1}), {bare}), HasSubstr("tgt_tokens/s 200\n"));
  bare.memory_bytes = 3ULL << 29;
  EXPECT_THAT(run(setup({.count = 1}), {bare}), HasSubstr("memory 1.5 GiB"));
}

TEST_F(MetricsTest, TruncatedTokensLeaveTheLossAlone) {
  StepMetrics a = step_of(1), b = step_of(2);
  a.truncated_tokens = 20;
  a.loss = 1;
  EXPECT_THAT(run(setup({.count = 2}), {a, b}), HasSubstr(" · truncated 10 %"));
  EXPECT_DOUBLE_EQ(lines()[0].at("loss").to_number<double>(), (1.0 * 80 + 3.0 * 100) / 180);
  EXPECT_DOUBLE_EQ(lines()[0].at("nll").to_number<double>(), 2);
  EXPECT_DOUBLE_EQ(lines()[0].at("truncated_frac").to_number<double>(), 0.1);
  EXPECT_THAT(run(setup({.count = 1}), {b}), Not(HasSubstr("truncated")));
}

TEST_F(MetricsTest, SkippedStepsLeaveTheMeans) {
  StepMetrics bad = step_of(2);
  bad.skipped = true;
  bad.loss = bad.nll = NAN;
  bad.n_skipped = 4;
  EXPECT_THAT(run(setup({.count = 2}), {step_of(1), bad}),
              HasSubstr(" 1 of the steps since the last line were skipped, 4 in all"));
  const std::string four = run(setup({.count = 2}), {step_of(1), bad, step_of(3), step_of(4)});
  EXPECT_EQ(four.find("were skipped"), four.rfind("were skipped")) << "not again";
  EXPECT_EQ(lines()[0].at("loss").to_number<double>(), 3.0);
  run(setup({.count = 2}), {bad});
  EXPECT_TRUE(lines()[0].at("loss").is_null());
}

TEST_F(MetricsTest, LogsAtMultiplesOfAnIntervalOfStepsTgtTokensOrEpochsAndByTheOffset) {
  using Unit = config::Period::Unit;
  const struct {
    config::Period interval;
    std::int64_t offset;
    std::vector<std::int64_t> logged;
  } cases[] = {{{.count = 3}, 0, {3, 6}},
               {{.count = 3}, 1, {1, 4, 7}},
               {{.count = 250, .unit = Unit::tgt_token}, 0, {3, 5}},
               {{.count = 0.5, .unit = Unit::epoch}, 0, {2, 4, 6}}};
  for (const auto& [interval, offset, logged] : cases) {
    run(setup(interval, offset), steps_of(1, 7));
    EXPECT_EQ(steps_logged(), logged);
  }
}

TEST_F(MetricsTest, AResumedRunContinuesTheFile) {
  run(setup({.count = 2}), steps_of(1, 6));
  const auto uninterrupted = lines();
  Metrics::Setup resumed = setup({.count = 2});
  resumed.before = step_of(3);
  run(resumed, steps_of(4, 6));
  EXPECT_EQ(steps_logged(), (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(lines().back(), uninterrupted.back()) << "the interval after the resume is whole again";
  EXPECT_DOUBLE_EQ(lines()[1].at("eta_s").to_number<double>(), 0.5 * 96) << "the pace is that since the resume";
}

TEST_F(MetricsTest, ValidationFiguresAreLinesOfTheirOwn) {
  const std::string said = stderr_of([&] {
    const Log log;
    Metrics metrics(setup_with_tensorboard(), files, folder.path(), log, clock);
    metrics.add_validation({.step = 20,
                            .set = "dev",
                            .figures = {{"loss", 2.5}, {"chrf", 41.25}},
                            .signatures = {{"chrf", "chrF2|nrefs:1"}}});
    metrics.add_validation({.step = 30, .set = "dev", .figures = {{"loss", 2.25}}});
  });
  EXPECT_THAT(said, HasSubstr("step 20 · validation dev · loss 2.5000 · chrf 41.2500"));
  EXPECT_EQ(lines()[0], boost::json::parse(R"({"step": 20, "validation": "dev", "figures": {"loss": 2.5, "chrf": 41.25},
                                   "signatures": {"chrf": "chrF2|nrefs:1"}})"));
  EXPECT_EQ(lines()[1], boost::json::parse(R"({"step": 30, "validation": "dev", "figures": {"loss": 2.25}})"));
  EXPECT_THAT(files.read_text(event_file()), HasSubstr("validation/dev/chrf"));
}

TEST_F(MetricsTest, TensorboardIsWrittenOnlyWhenWanted) {
  run(setup({.count = 1}), {step_of(1)});
  EXPECT_FALSE(files.exists(folder / "tensorboard"));
  run(setup_with_tensorboard(), {step_of(1)});
  for (const char* tag : {"loss", "grad_norm", "tgt_tokens_per_s"})
    EXPECT_THAT(files.read_text(event_file()), HasSubstr(tag));
}

TEST_F(MetricsTest, WandbIsWrittenOnlyWhenWanted) {
  run(setup({.count = 1}), {step_of(1)});
  EXPECT_FALSE(files.exists(folder / "wandb"));
  Metrics::Setup s = setup({.count = 1});
  s.config.wandb.mode = WandbMode::offline;
  EXPECT_THAT(run(s, {step_of(1)}),
              HasSubstr("upload it with: wandb sync " + (folder / "wandb/offline-run-").string()));
  EXPECT_TRUE(files.exists(folder / "wandb"));
}

TEST_F(MetricsTest, TheConfigurationIsWrittenNextToTheFigures) {
  Metrics::Setup s = setup({.count = 1});
  s.configuration = {{"seed", 7}};
  run(s, {step_of(1)});
  EXPECT_EQ(boost::json::parse(files.read_text(folder / "run_config.json")), boost::json::parse(R"({"seed": 7})"));
}

TEST_F(MetricsTest, ALineOfProgressIsRewrittenOnATerminal) {
  const auto body = [&] {
    const Log log;
    Metrics metrics(setup({.count = 10}), files, folder.path(), log, clock);
    for (const StepMetrics& step : steps_of(1, 10)) metrics.add(step);
  };
  EXPECT_THAT(test::terminal_output_of(body),
              AllOf(HasSubstr("training   1 % · step 1 · loss 3.0000 · tgt_tokens/s 200"), HasSubstr("\r\x1b[K"),
                    HasSubstr(" info    step 10 (10.0 %)")));
  EXPECT_THAT(stderr_of(body), Not(HasSubstr("training")));
}

TEST_F(MetricsTest, AFullDiskEndsNothingAndTearsNoRecord) {
  test::FaultyOs os;
  const Log log;
  Metrics metrics(setup_with_tensorboard(), Files{os}, folder.path(), log, clock);
  const Path events = event_file();
  const std::size_t head_bytes = files.read_text(events).size();
  metrics.add(step_of(1));
  const auto step_with_full_disk = [&](std::int64_t step, std::size_t record) {  // record: 0 the line, 1 the event
    os.shorten(os.count() + record);
    os.fail(test::Call::write, os.count(test::Call::write) + record + 1, ENOSPC);
    return stderr_of([&] { metrics.add(step_of(step)); });
  };
  const std::string before = files.read_text(events);
  EXPECT_THAT(step_with_full_disk(2, 0), HasSubstr("metrics.jsonl is not written from step 2 on: "));
  EXPECT_THAT(step_with_full_disk(3, 0), testing::Not(HasSubstr("not written"))) << "said once";
  EXPECT_EQ(steps_logged(), std::vector<std::int64_t>{1});
  EXPECT_EQ(files.read_text(events).size(), 3 * before.size() - 2 * head_bytes) << "two whole records more";
  EXPECT_THAT(stderr_of([&] { metrics.add(step_of(4)); }), HasSubstr("metrics.jsonl is written again from step 4 on"));
  const std::string with_step_4 = files.read_text(events);
  EXPECT_THAT(step_with_full_disk(5, 1), HasSubstr("tensorboard is not written from step 5 on"));
  EXPECT_EQ(files.read_text(events), with_step_4);
  EXPECT_EQ(steps_logged(), (std::vector<std::int64_t>{1, 4, 5}));
}

TEST_F(MetricsTest, FilesThatCannotBeOpenedEndNothingAndAreOpenedWhenTheyCan) {
  files.write_atomically(folder / "theirs", "{\"step\":9}\n");
  files.link_symbolically("theirs", folder / "metrics.jsonl");
  files.write_atomically(folder / "tensorboard", "a file");
  const Log log;
  std::optional<Metrics> metrics;
  const std::string said = stderr_of([&] {
    metrics.emplace(setup_with_tensorboard(), files, folder.path(), log, clock);
    metrics->add(step_of(1));
  });
  EXPECT_THAT(said, AllOf(HasSubstr("metrics.jsonl is not written from step 0 on"),
                          HasSubstr("tensorboard is not written from step 0 on")));
  files.remove(folder / "metrics.jsonl");
  files.remove(folder / "tensorboard");
  metrics->add(step_of(2));
  EXPECT_EQ(steps_logged(), std::vector<std::int64_t>{2});
  EXPECT_TRUE(files.exists(event_file()));
  EXPECT_EQ(files.read_text(folder / "theirs"), "{\"step\":9}\n");
}

TEST_F(MetricsTest, NoFailingCallEndsTheRun) {
  const Log log{0, LogLevel::error};
  const auto run = [&](Os& os) {
    for (const char* name : {"tensorboard", "wandb"}) files.remove_tree(folder / name);
    files.write_atomically(folder / "metrics.jsonl", "{\"step\":1}\n{\"step\":9}\nnonsense\n{\"step\":9}\n");
    Metrics::Setup s = setup_with_tensorboard();
    s.config.wandb.mode = WandbMode::offline;
    s.before.step = 1;
    Metrics metrics(s, Files{os}, folder.path(), log, clock);
    metrics.add(step_of(2));
    metrics.add(step_of(3));
  };
  test::FaultyOs sound;
  run(sound);
  EXPECT_EQ(files.read_text(folder / "metrics.jsonl").find("\"step\":9"), std::string::npos);
  for (std::size_t n = 0; n < sound.count(); ++n) {
    test::FaultyOs os;
    os.fail(n, ENOSPC);
    EXPECT_NO_THROW(run(os)) << n;
    EXPECT_EQ(os.open_files(), 0U) << n;
    EXPECT_EQ(files.list(folder.path()),
              (std::vector<std::string>{"metrics.jsonl", "run_config.json", "tensorboard", "wandb"}))
        << n;
    std::istringstream lines{files.read_text(folder / "metrics.jsonl")};
    for (std::string line; std::getline(lines, line);) {
      boost::json::error_code error;
      boost::json::parse(line, error);
      EXPECT_TRUE(!error || line == "nonsense") << n << line;
    }
  }
}

TEST_F(MetricsTest, WarnsOnceOfManyClippedSteps) {
  const auto warnings = [&](int clipped_of_ten, std::int64_t last = 30, double interval = 10) {
    std::vector<StepMetrics> steps = steps_of(1, 30);
    for (StepMetrics& step : steps) step.clipped = step.step <= last && step.step % 10 < clipped_of_ten;
    const std::string log = run(setup({.count = interval}), steps);
    std::size_t count = 0;
    for (std::size_t at = log.find("clipped"); at != std::string::npos; at = log.find("clipped", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(warnings(2), 0U);
  EXPECT_EQ(warnings(3), 1U);
  EXPECT_EQ(warnings(9, 10), 0U) << "only at the start";
  for (const double interval : {1.0, 5.0}) {
    EXPECT_EQ(warnings(2, 30, interval), 0U) << interval;
    EXPECT_EQ(warnings(3, 30, interval), 1U) << interval;
  }
}

TEST_F(MetricsTest, WarnsOnceOfStepsThatWaitForData) {
  const auto warnings = [&](double share) {
    std::vector<StepMetrics> steps = steps_of(1, 40);
    for (StepMetrics& step : steps) step.data_wait_s = share * step.step_s;
    const std::string log = run(setup({.count = 10}), steps);
    std::size_t count = 0;
    for (std::size_t at = log.find("data.workers"); at != std::string::npos; at = log.find("data.workers", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(warnings(0.04), 0U);
  EXPECT_EQ(warnings(0.06), 1U);
}

TEST_F(MetricsTest, CorporaHaveTheirLossesAndSharesComponentsTheirNorms) {
  std::vector<StepMetrics> steps = steps_of(1, 2);
  for (StepMetrics& step : steps) {
    step.tgt_tokens = 100;
    step.corpora = {{.nll = 60, .tgt_tokens = 20}, {.nll = 80, .tgt_tokens = 80}};
    step.component_norms = {3, static_cast<double>(step.step)};
  }
  steps[1].corpora = {{.nll = 40, .tgt_tokens = 80}, {.nll = 40, .tgt_tokens = 20}};
  Metrics::Setup with_parts = setup({.count = 2});
  with_parts.corpora = {"en-fr", "fr-en"};
  with_parts.components = {"all", "encoder.en"};
  run(with_parts, steps);
  const boost::json::value line = lines().at(0);
  EXPECT_EQ(line.at("nll/en-fr"), 1);
  EXPECT_EQ(line.at("share/en-fr"), 0.5);
  EXPECT_EQ(line.at("nll/fr-en"), 1.2);
  EXPECT_EQ(line.at("grad_norm/all"), 3);
  EXPECT_EQ(line.at("grad_norm/encoder.en"), 2) << "of the last step";
}

TEST_F(MetricsTest, SumsOfOtherCorporaThatACheckpointCountsAreLeftOut) {
  Metrics::Setup forged = setup({.count = 1});
  forged.corpora = {"en-fr", "fr-en"};
  forged.window.corpora.resize(5, {.nll = 1e9, .tgt_tokens = 1});
  std::vector<StepMetrics> steps = steps_of(1, 2);
  for (StepMetrics& step : steps) step.corpora = {{.nll = 60, .tgt_tokens = 20}, {.nll = 80, .tgt_tokens = 80}};
  steps[1].skipped = true;
  run(forged, steps);
  EXPECT_EQ(lines().at(0).at("nll/en-fr"), 3);
  EXPECT_FALSE(lines().at(1).as_object().contains("nll/en-fr")) << "the only step was skipped";
}

TEST(TelemetryConfig, EveryKeyHasATextAndARange) {
  EXPECT_EQ(config::keys_without_text<TelemetryConfig>(), std::vector<std::string>{});
  const auto read = [](std::string_view text) {
    return config::from_document<TelemetryConfig>(config::Document::parse(text, "t"));
  };
  for (const char* text : {R"({"log_interval": 0})", R"({"log_offset": -1})"}) EXPECT_THROW((void)read(text), Error);
  EXPECT_TRUE(read(R"({"tensorboard": true})").tensorboard);
}

TEST_F(MetricsTest, AReportTellsOfStepsThatAnEarlierProcessTook) {
  std::vector<StepMetrics> steps = steps_of(1, 4);
  WindowSums begun;
  for (StepMetrics& step : steps) {
    step.loss = static_cast<double>(step.step);
    step.clipped = step.step == 1;
    if (step.step < 3) begun.add(step);
  }
  Metrics::Setup resumed = setup({.count = 4});
  resumed.before = steps[1];
  resumed.window = begun;
  run(resumed, {steps[2], steps[3]});
  const boost::json::value line = lines().at(0);
  EXPECT_EQ(line.at("loss"), 2.5);
  EXPECT_EQ(line.at("clip_frac"), 0.25);
  EXPECT_EQ(line.at("step_ms"), 500) << "of the steps that this process has timed";
}

}  // namespace
}  // namespace argosy::telemetry
