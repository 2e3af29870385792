#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <string_view>

#include "core/clock.hpp"
#include "core/file.hpp"
#include "core/log.hpp"

/// run_dir/status.json: the state of the run, for people and job scripts (FORMAT.md). The constructor writes `running`;
/// while the run takes steps the file is updated every ten seconds. A Status that is destroyed before `stopped` or
/// `done` was called, because an error passes through, writes `failed`. A file that cannot be written causes a warning
/// and does not end the run. Rank 0 only.
namespace argosy::telemetry {

enum class State { running, stopped, failed, done };
BOOST_DESCRIBE_ENUM(State, running, stopped, failed, done)

class Status {
 public:
  /// `step` and `fraction_done` (of the schedule) say where the run begins.
  Status(const Files& files, const Path& run_dir, const Log& log, const Clock& clock, std::int64_t step,
         double fraction_done = 0);
  ~Status();
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  /// Notes the progress of the run. Cheap: call it at every step.
  void running(std::int64_t step, double fraction_done);
  /// The run ended early on purpose, with a checkpoint of `step`. `reason` names a signal, a time limit, a file …
  void stopped(std::int64_t step, std::string_view reason);
  void done(std::int64_t step);

 private:
  [[nodiscard]] std::string text(State state, std::string_view reason) const;
  void end(State state, std::int64_t step, std::string_view reason);

  Files files_;
  Path path_;
  BestEffort writing_;
  const Clock* clock_;
  double begin_s_, begin_fraction_, written_s_;
  std::int64_t step_;
  double fraction_done_;
  bool over_ = false;
};

}  // namespace argosy::telemetry
