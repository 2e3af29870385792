#pragma once

#include <algorithm>
#include <boost/json/object.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collectives.hpp"
#include "comm/run_main.hpp"
#include "plan/run_config.hpp"
#include "train/init_weights.hpp"
#include "train/run_state.hpp"
#include "train/runner.hpp"

/// Runs a training from its configuration to its end. apps/train calls it.
namespace argosy::train {

struct TrainOptions {
  bool from_scratch = false;                 // renames old checkpoints and begins anew
  std::string resume = "auto";               // "auto": the newest checkpoint of run_dir; else a checkpoint's directory
  bool abandon_newer = false;                // renames checkpoints that are newer than the one resumed from
  std::string request{};                     // names the job's request, which is carried out once (begin.hpp)
  std::vector<std::string> allow_changes{};  // keys whose change on resume is accepted
  [[nodiscard]] bool allows(std::string_view key) const { return std::ranges::count(allow_changes, key) > 0; }
  bool profile = false;  // time the operations of steps, and print where the time goes
  /// The names of the formats to which a model can be exported, for the log.
  std::function<std::vector<std::string>(const spec::Architecture&)> formats_for{};
  OpenModel open_model{};        // for init_from
  OpenAdapters open_adapters{};  // likewise
  /// Called on every rank after each step, before the decision whether the run stops.
  std::function<void(const RunState&, const StepResult&)> after_step{};
};

struct TrainReport {
  Exit exit = Exit::ok;         // stopped: a checkpoint is committed, and the job should be requeued
  boost::json::object figures;  // of the result line
};

/// Trains until the end of the schedule, until validations no longer improve, or until a rank wants to stop
/// (StopPolicy). The same command resumes, and gives the bits of an uninterrupted run with the same number of ranks.
/// Leaves checkpoints, an export at the end, metrics.jsonl and status.json.
/// **Collective.** Throws Error{usage} if another job owns run_dir, Error{config} if the configuration does not fit the
/// run, Error{data}, Error{io} after too many failed saves, Error{numeric} if too many steps in a row are skipped.
[[nodiscard]] TrainReport run_training(comm::Context& context, const plan::RunConfig& config,
                                       const TrainOptions& options);

}  // namespace argosy::train
