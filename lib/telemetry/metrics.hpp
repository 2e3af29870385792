#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/best_effort.hpp"
#include "core/clock.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "telemetry/event_file.hpp"
#include "telemetry/flops.hpp"
#include "telemetry/jsonl.hpp"
#include "telemetry/telemetry_config.hpp"

/// Figures of training steps on their way to people and programs: a log line, an object in run_dir/metrics.jsonl
/// (FORMAT.md) and, if wanted, TensorBoard, each log interval. Rates are means over the interval. Lives on rank 0;
/// takes counts already summed over ranks; never touches a device. One thread.
namespace argosy::telemetry {

/// One step, over all ranks.
struct StepMetrics {
  std::int64_t step = 0;
  double fraction_done = 0;  // of the schedule, 0 to 1
  double epoch = 0;
  double loss = 0, nll = 0;  // means over tgt_tokens, with and without label smoothing
  double lr = 0;
  double grad_norm = 0;  // before clipping
  bool clipped = false, skipped = false;
  std::int64_t n_clips = 0, n_skipped = 0;  // since the first step
  std::int64_t src_tokens = 0, tgt_tokens = 0, padded_tokens = 0;
  std::int64_t total_tgt_tokens = 0;  // since the first step
  Work work;
  double step_s = 0, data_wait_s = 0;  // of the slowest rank
  std::uint64_t memory_bytes = 0;      // peak of the fullest rank
};

/// Whether the step that led from `before` to `after` fills a log interval: `after` reaches or passes a place
/// log_offset + n * log_interval.
[[nodiscard]] bool fills_interval(const TelemetryConfig& config, const StepMetrics& before, const StepMetrics& after);

/// What a report sums up of its steps that does not hang on time: part of a checkpoint, so that the report of an
/// interval in which a run was stopped or killed tells of the whole of it.
struct WindowSums {
  double loss = 0, nll = 0, tgt_tokens = 0;  // of steps that were not skipped
  std::int64_t steps = 0, clipped = 0;
  void add(const StepMetrics& step);
  bool operator==(const WindowSums&) const = default;
};

/// Means, sums and latest values over the steps since the last report.
class Window {
 public:
  /// begun: of this window's steps that an earlier process has taken.
  explicit Window(double fraction_before = 0, const WindowSums& begun = {})
      : first_fraction_(fraction_before), sums_(begun) {}

  void add(const StepMetrics& step);
  struct Report {
    StepMetrics last;
    std::int64_t steps = 0;
    double loss = 0, nll = 0;  // over the steps that were not skipped; NaN when all were
    double clip_frac = 0;
    double src_tokens_per_s = 0, tgt_tokens_per_s = 0, padded_tokens_per_s = 0;  // all ranks
    double step_ms = 0, data_wait_ms = 0;
    Flops flops_per_s;            // all ranks
    std::optional<double> eta_s;  // absent before the end is in sight
  };
  [[nodiscard]] Report report(const FlopShape& shape) const;

 private:
  StepMetrics last_, sum_;
  double first_fraction_;
  WindowSums sums_;
  std::int64_t timed_steps_ = 0;
};

/// A figure of a validation: "loss" 3.1, "chrf" 41.2.
struct Figure {
  std::string name;
  double value = 0;
};

class Metrics {
 public:
  struct Setup {
    TelemetryConfig config;
    FlopShape shape;
    int ranks = 1;
    std::optional<double> peak_flops;  // of one rank's device; absent: MFU "unknown"
    /// Where a resumed run starts from: step, fraction_done, epoch and total_tgt_tokens count; what files hold of later
    /// steps is cut off.
    StepMetrics before{};
    /// Its steps since the last report.
    WindowSums window{};
  };
  /// Opens the files of `run_dir`, which exists; where that fails it warns, and tries again with each report. Borrows
  /// log and clock. Warns once when more than a fifth of an interval's steps (ten at least) was clipped.
  Metrics(const Setup& setup, const Files& files, const Path& run_dir, const Log& log, const Clock& clock);

  /// Counts one step, and reports when the log interval is full.
  void add(const StepMetrics& step);
  /// Writes out one validation set's figures.
  void add_validation(std::int64_t step, const std::string& set, std::span<const Figure> figures);

 private:
  void write(const Window::Report& report);
  /// Into both files, each as far as it can be opened and written: what only informs does not end training.
  void keep(std::int64_t step, const boost::json::object& line, std::span<const Scalar> scalars);
  void open_lines();
  void open_events();

  Setup setup_;
  Files files_;
  Path run_dir_;
  const Log* log_;
  const Clock* clock_;
  StepMetrics before_;
  Window window_;
  std::int64_t resumed_step_;
  BestEffort writing_lines_, writing_events_;
  std::optional<JsonLines> lines_;
  std::optional<EventFile> events_;
  bool warned_of_clips_ = false;
};

/// The log line and the metrics.jsonl object of a report.
[[nodiscard]] std::string line_of(const Window::Report& report, const Metrics::Setup& setup);
[[nodiscard]] boost::json::object json_of(const Window::Report& report, const Metrics::Setup& setup);

}  // namespace argosy::telemetry
