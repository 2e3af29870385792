#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <string_view>

#include "core/best_effort.hpp"
#include "core/clock.hpp"
#include "core/file.hpp"

/// run_dir/status.json: what became of the run, for people and job scripts (FORMAT.md). Says `running` from the first
/// moment, and again every ten seconds while steps are taken; an object that ends without a verdict (an error passes
/// through) leaves `failed`. A file that cannot be written is warned of and ends nothing. Rank 0 only.
namespace argosy::telemetry {

enum class State { running, stopped, failed, done };
BOOST_DESCRIBE_ENUM(State, running, stopped, failed, done)

class Status {
 public:
  /// fraction_done: of the schedule, where the run begins.
  Status(const Files& files, const Path& run_dir, const Log& log, const Clock& clock, std::int64_t step,
         double fraction_done = 0);
  ~Status();
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  /// Notes how far the run is; cheap, for every step.
  void running(std::int64_t step, double fraction_done);
  /// Ended on purpose before the end, with a checkpoint of `step`; `reason` is a signal, a time limit, a file …
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
