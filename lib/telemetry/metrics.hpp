#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/log.hpp"
#include "telemetry/sink.hpp"

/// Collects the figures of steps. At the end of each log interval it writes a log line and hands a record to every
/// sink. Lives on rank 0, takes counts that are already summed over ranks, and touches no device. One thread.
namespace argosy::telemetry {

/// Whether the step that led from `before` to `after` ends a log interval: `after` reaches or passes a place
/// log_offset + n * log_interval.
[[nodiscard]] bool fills_interval(const TelemetryConfig& config, const StepMetrics& before, const StepMetrics& after);

/// The sums of an interval that do not depend on time. They are part of a checkpoint: when a run stops within an
/// interval, the record of that interval still covers all of its steps.
struct WindowSums {
  double loss = 0, nll = 0, tgt_tokens = 0, truncated = 0;  // of steps that were not skipped
  std::int64_t steps = 0, clipped = 0;
  std::vector<CorpusSums> corpora{};
  void add(const StepMetrics& step);
  bool operator==(const WindowSums&) const = default;
};

/// Says once that a thing is to be warned of: when it is so for the second time in a row.
class OnceAtTheSecond {
 public:
  bool operator()(bool is_so) {
    const bool is_second = std::exchange(before_, is_so) && is_so;
    return is_second && !std::exchange(said_, true);
  }

 private:
  bool before_ = false, said_ = false;
};

class Metrics {
 public:
  struct Setup {
    TelemetryConfig config;
    FlopShape shape;
    int ranks = 1;
    std::optional<double> peak_flops;  // of one rank's device; absent: unknown
    /// Where a resumed run continues: step, fraction_done, epoch and total_tgt_tokens count. Sinks drop later steps.
    StepMetrics before{};
    std::vector<std::string> corpora{}, components{};  // their names, where there are several
    /// The sums over its steps since the last record.
    WindowSums window{};
    boost::json::object configuration{};  // of the whole run; also written to run_dir/run_config.json
  };
  /// Opens the sinks in `run_dir`, which exists. Borrows `log` and `clock`. A sink that cannot be opened or written
  /// does not end training: the log has a warning, and each record tries again.
  Metrics(const Setup& setup, const Files& files, const Path& run_dir, const Log& log, const Clock& clock);

  /// Counts one step. The step that ends a log interval writes a log line and a record. Warns once when more than a
  /// fifth of the steps were clipped, in two intervals in a row, each together with those before it until they have ten
  /// steps; the first gradients of a run are large in any case.
  void add(const StepMetrics& step);
  /// Writes the log line and the record of one validation set.
  void add_validation(const ValidationRecord& record);

 private:
  struct Output {
    const SinkKind* kind;
    BestEffort writing;
    std::unique_ptr<Sink> sink{};
  };

  [[nodiscard]] StepRecord record() const;
  /// Warns of clipped steps, and of steps that wait for data.
  void advise(const StepRecord& done);
  template <class Write>
  void write_to_all(std::int64_t step, Write&& write);

  Setup setup_;
  Files files_;
  Path run_dir_;
  const Log* log_;
  const Clock* clock_;
  StepMetrics before_;  // the last step, or where the run continues
  std::int64_t resumed_step_;
  std::vector<Output> outputs_;
  OnceAtTheSecond clips_, waits_;
  struct Judged {
    std::int64_t steps = 0, clipped = 0;
    double wait_s = 0, step_s = 0;
  };
  Judged judged_;  // since the last records that had enough steps to tell

  // Since the last record.
  double first_fraction_;
  WindowSums sums_;
  StepMetrics timed_;  // sums over the steps that this process has taken
  std::int64_t timed_steps_ = 0, skipped_steps_ = 0;
};

}  // namespace argosy::telemetry
