#pragma once

#include <boost/describe.hpp>
#include <cstdint>
#include <string_view>

#include "core/clock.hpp"
#include "core/file.hpp"

/// run_dir/status.json: what became of the run, for people and job scripts: {"state", "step", "time", "reason"}. Says
/// `running` from the first moment; an object that ends without a verdict (an error passes through) leaves `failed`.
/// Rank 0 only.
namespace argosy::telemetry {

enum class State { running, stopped, failed, done };
BOOST_DESCRIBE_ENUM(State, running, stopped, failed, done)

class Status {
 public:
  Status(const Files& files, const Path& run_dir, const Clock& clock, std::int64_t step);
  ~Status();
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  /// Notes how far the run is.
  void running(std::int64_t step);
  /// Ended on purpose before the end, with a checkpoint of `step`; `reason` is a signal, a time limit, a file …
  void stopped(std::int64_t step, std::string_view reason);
  void done(std::int64_t step);

 private:
  void write(State state, std::int64_t step, std::string_view reason);

  Files files_;
  Path path_;
  const Clock* clock_;
  std::int64_t step_;
  bool over_ = false;
};

}  // namespace argosy::telemetry
