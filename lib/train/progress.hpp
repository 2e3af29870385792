#pragma once

#include <optional>

#include "comm/run_main.hpp"
#include "optim/schedule.hpp"
#include "telemetry/metrics.hpp"
#include "telemetry/status.hpp"
#include "train/run_state.hpp"
#include "train/runner.hpp"

/// Reports the progress of a run. Collects the figures that only single ranks know, over exactly the steps that a log
/// line covers. Rank 0 hands them to telemetry. Borrows the context. One thread a rank.
namespace argosy::train {

/// The place of a run in its schedule. Holds no figures of any step.
[[nodiscard]] telemetry::StepMetrics place_of(const RunState& state, const optim::Schedule& schedule);

/// The figures of the step that led to `state`. They are equal on all ranks.
[[nodiscard]] telemetry::StepMetrics metrics_of(const StepResult& result, const data::StepBatches& batches,
                                                const RunState& state, const optim::Schedule& schedule, double step_s);

class Progress {
 public:
  /// Opens the sinks and status.json in `run_dir` on rank 0. **Collective.** An error of rank 0 is thrown on all ranks.
  Progress(const comm::Context& context, const telemetry::Metrics::Setup& setup, const Path& run_dir);

  /// Counts a step for which this rank waited `waited_s` for data. The step that ends a log interval also finds the
  /// longest wait of any rank over the interval and the highest memory peak. **Collective.**
  void add(telemetry::StepMetrics step, const StepTimes& times, double waited_s);
  /// Reports the record of one validation set; only that of rank 0 counts.
  void add_validation(const telemetry::ValidationRecord& record);

  /// Sums over the steps since the last log line, equal on all ranks.
  [[nodiscard]] const telemetry::WindowSums& window() const noexcept { return window_; }
  void stopped(std::int64_t step, const std::string& reason);
  void done(std::int64_t step);
  /// Logs the mean time that this rank's steps spent in each phase.
  void log_times() const;

 private:
  const comm::Context& context_;
  const telemetry::TelemetryConfig config_;
  telemetry::StepMetrics before_;
  telemetry::WindowSums window_;
  std::optional<telemetry::Metrics> metrics_;  // rank 0
  std::optional<telemetry::Status> status_;    // rank 0
  double waited_s_ = 0;                        // since the last log line
  std::int64_t steps_ = 0;
  StepTimes times_;
};

}  // namespace argosy::train
