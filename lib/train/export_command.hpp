#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/child.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "plan/run_config.hpp"
#include "telemetry/sink.hpp"

/// Runs the user's program (validation.command) on committed exports, one at a time, while training goes on. Rank 0
/// alone uses it. Nothing waits for the program; it is killed after its limit and with its object. Borrows all.
namespace argosy::train {

class ExportCommand {
 public:
  /// The output of a command is run_dir/command.json, until the next one starts.
  ExportCommand(const plan::CommandConfig& config, const Files& files, const Path& run_dir, const Log& log,
                const Clock& clock);

  /// Starts the command on the export of `step`. While another one runs, the newest export waits for its end.
  void exported(std::int64_t step, const Path& directory);
  /// The figures of a command that has ended, in a record without a step. Kills one that has reached its limit. Warns
  /// of a command that failed, unless the one before it failed as well.
  [[nodiscard]] std::optional<telemetry::ValidationRecord> poll();
  [[nodiscard]] bool is_running() const { return child_.has_value(); }

 private:
  void start(std::int64_t step, const Path& directory);
  /// Throws Error{data} if the command failed, or if its last line is not a JSON object with numbers.
  [[nodiscard]] std::vector<telemetry::Figure> figures(int code) const;
  /// Runs `body`; its error is logged unless the one before failed as well.
  template <class Body>
  void warn_once(const Body& body);

  const plan::CommandConfig config_;
  const Files files_;
  const Path output_;
  const Log* log_;
  const Clock* clock_;
  std::optional<Child> child_;
  std::int64_t step_ = 0;  // of the export that the command looks at
  double begin_s_ = 0;
  std::optional<std::pair<std::int64_t, Path>> waiting_;
  bool failing_ = false;
};

}  // namespace argosy::train
