#pragma once

#include <optional>

#include "comm/run_main.hpp"
#include "optim/schedule.hpp"
#include "telemetry/metrics.hpp"
#include "telemetry/status.hpp"
#include "train/run_state.hpp"
#include "train/runner.hpp"

/// How a run tells of its steps: what ranks know each for themselves is collected over exactly the steps that a log
/// line is about, rank 0 hands it on to telemetry. Borrows the context. One thread a rank.
namespace argosy::train {

/// Where a run stands, as telemetry counts: no figures of any step.
[[nodiscard]] telemetry::StepMetrics place_of(const RunState& state, const optim::Schedule& schedule);

/// The figures of the step that led to `state`, which all ranks know alike.
[[nodiscard]] telemetry::StepMetrics metrics_of(const StepResult& result, const data::StepBatches& batches,
                                                const RunState& state, const optim::Schedule& schedule, double step_s);

class Progress {
 public:
  /// Opens metrics.jsonl and status.json of `run_dir` on rank 0. **Collective.** Throws on all ranks what rank 0 met.
  Progress(const comm::Context& context, const telemetry::Metrics::Setup& setup, const Path& run_dir);

  /// Counts a step for which this rank waited `waited_s` for data. The step that fills a log interval takes along the
  /// longest wait over it and the fullest memory of any rank. **Collective.**
  void add(telemetry::StepMetrics step, const StepTimes& times, double waited_s);
  /// One validation set's figures, known to rank 0.
  void add_validation(std::int64_t step, const std::string& set, std::span<const telemetry::Figure> figures);

  /// Of the steps since the last log line, alike on all ranks.
  [[nodiscard]] const telemetry::WindowSums& window() const noexcept { return window_; }
  void stopped(std::int64_t step, const std::string& reason);
  void done(std::int64_t step);
  /// Logs what this rank's steps were spent on, on the mean.
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
