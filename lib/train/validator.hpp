#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/advice.hpp"
#include "train/early_stop.hpp"
#include "train/evaluate.hpp"
#include "train/export_command.hpp"
#include "train/progress.hpp"
#include "train/run_parts.hpp"

/// The validations of a run: evaluates its sets, reports them, learns from them when the run ends and what to tell the
/// user, and runs validation.command on exports.
namespace argosy::train {

class Validator {
 public:
  /// Borrows the run. stored: RunState::validations.
  Validator(RunParts& run, const boost::json::object& stored);

  /// What the checkpoint of `step` stores (RunState::validations).
  [[nodiscard]] boost::json::object state(std::int64_t step) const;
  /// Whether the run ends, and what is kept.
  [[nodiscard]] ValidationHistory& history() noexcept { return history_; }
  [[nodiscard]] const ValidationHistory& history() const noexcept { return history_; }

  /// Counts a step since the last validation: its summed nll and its tgt_tokens.
  void trained(double nll_sum, std::int64_t tgt_tokens);
  /// Evaluates the weights and then their running mean, if there is one, on all sets; updates `state`. passes: through
  /// each corpus so far. True: a metric of keep_best has never been better. nullopt: a rank wants to stop; then nothing
  /// is reported, and the state still owes the validation. **Collective.**
  [[nodiscard]] std::optional<bool> validate(RunState& state, const EvaluatedModel& model,
                                             const std::vector<double>& passes, Progress& progress);

  /// The save of `step` has ended. Starts validation.command if it was an export. Rank 0 runs the command.
  void saved(std::int64_t step, bool committed);
  /// Reports the figures of a command that has ended, at `step`.
  void poll_command(std::int64_t step, Progress& progress);
  /// Waits for the command at the end of the run. A run that has to stop does not. **Collective.**
  void finish_command(std::int64_t step, bool stopped, Progress& progress);

 private:
  struct Evaluated {
    const EvaluationSet& set;
    bool of_mean;
    Evaluation evaluation;
  };
  bool evaluate_all(bool of_mean, std::int64_t step, const EvaluatedModel& model, std::vector<Evaluated>& all) const;
  void report(const Evaluated& evaluated, RunState& state, Progress& progress);
  void add_translations(const EvaluationSet& set, bool of_mean, const std::vector<std::string>& translations,
                        telemetry::ValidationRecord& record);
  void advise_on_losses(const std::string& set, double loss, const RunState& state, const std::vector<double>& passes);
  void warn(const std::vector<std::string>& sentences) const;

  RunParts& run_;
  const plan::TranslatedLines translated_;
  ValidationHistory history_;
  ValidationAdvice advice_;
  std::optional<ExportCommand> command_;         // rank 0
  double trained_nll_ = 0, trained_tokens_ = 0;  // since the last validation
};

}  // namespace argosy::train
