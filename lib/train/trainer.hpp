#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <string>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/run_main.hpp"
#include "plan/run_config.hpp"
#include "train/run_state.hpp"
#include "train/runner.hpp"

/// A training run from its configuration to its end: what apps/train calls.
namespace argosy::train {

struct TrainOptions {
  bool from_scratch = false;    // sets old checkpoints aside
  std::string resume = "auto";  // newest checkpoint of run_dir, or a checkpoint's directory
  bool abandon_newer = false;   // renames checkpoints that are newer than the one resumed from
  std::string request{};  // a job's name for what it asks for by these: done once, however often it starts (begin.hpp)
  std::vector<std::string> allow_changes{};  // keys whose change on resume is accepted
  /// Names of the formats that a model can be exported in, for the announcement.
  std::function<std::vector<std::string>(const spec::Architecture&)> formats_for{};
  /// Called on every rank behind each step, before it is decided whether the run stops.
  std::function<void(const RunState&, const StepResult&)> after_step{};
};

struct TrainReport {
  Exit exit = Exit::ok;         // stopped: a checkpoint is committed, the run wants to be requeued
  boost::json::object figures;  // of the result line
};

/// How ranks add up gradients: sharding.reduction over precision.gradient_wire.
[[nodiscard]] comm::CollectivesOptions collectives_options(const plan::RunConfig& config);

/// Trains until the schedule's length, or until the ranks agree to stop (signal, stop file). The same command resumes:
/// bits of an uninterrupted run at the same world size. Leaves checkpoints, an export at the end, metrics.jsonl,
/// status.json.
/// **Collective.** Throws Error{usage} when another job owns run_dir, Error{config} for a configuration that does not
/// fit the run, Error{data}, Error{io} when saving fails for good, Error{numeric} when too many steps in a row are
/// skipped.
[[nodiscard]] TrainReport run_training(comm::Context& context, const plan::RunConfig& config,
                                       const TrainOptions& options);

}  // namespace argosy::train
