#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/exit_file.hpp"
#include "core/clock.hpp"
#include "core/file.hpp"

/// Reads what a run directory says about a run and its jobs, for people and job scripts (FORMAT.md). The directory may
/// hold anything: each file is read by a strict parser, up to a size limit, and never through a link. A file that
/// cannot be read becomes a sentence in `problems` and hides no other file. Changes nothing; needs no MPI.
namespace argosy::telemetry {

/// A start of a job: the newest committed step that it found, and its time in seconds since 1970. step -1: its line
/// cannot be read.
struct Start {
  std::int64_t step = -1;
  std::int64_t time_s = 0;
  bool operator==(const Start&) const = default;
};
/// The lines of starts.<job>, "STEP" or "STEP TIME" each. A last line without an end is ignored.
[[nodiscard]] std::vector<Start> parse_starts(std::string_view text);
/// How many of the latest starts in a row found `newest_step`: no checkpoint is newer than they are.
[[nodiscard]] std::int64_t fruitless(const std::vector<Start>& starts, std::int64_t newest_step);

struct ChainJob {
  std::string stage;  // count, preprocess, train, soup or export
  std::string job;    // digits; empty: not submitted
};
/// The entries of chain.json. Throws Error{corrupt}.
[[nodiscard]] std::vector<ChainJob> parse_chain(std::string_view text);

/// What Slurm's squeue says about each job that it was asked for: "STATE REASON", or "" if the job has left the queue.
using Queue = std::map<std::string, std::string>;

/// The state of a stage, as FORMAT.md lists them. `job` "": the stage was not submitted.
[[nodiscard]] std::string state_of(const std::string& job, const std::optional<comm::ExitRecord>& exit,
                                   const Queue& queue);

/// The starts of one job and how it ended.
struct JobReport {
  std::vector<Start> starts;
  std::optional<comm::ExitRecord> exit;  // of its last restart that wrote one
};

/// The files of one run directory. Each function reads them again.
class RunFiles {
 public:
  RunFiles(const Files& files, Path run_dir) : files_(files), run_dir_(std::move(run_dir)) {}

  /// Committed checkpoints, one per step, oldest first, such as "export/000000160". Where a step has a temporary and a
  /// permanent one, the permanent one.
  [[nodiscard]] std::vector<std::string> checkpoints();
  /// The newest committed step; 0: none.
  [[nodiscard]] std::int64_t newest_step();
  /// `restart`: the restart whose exit file is read; nullopt: the last one that wrote an exit file.
  [[nodiscard]] JobReport job(const std::string& number, std::optional<std::int64_t> restart = std::nullopt);
  [[nodiscard]] std::vector<ChainJob> chain();  // empty: no chain.json
  /// status.json, with its keys checked.
  [[nodiscard]] std::optional<boost::json::object> training();
  /// The last validation in metrics.jsonl.
  [[nodiscard]] std::optional<boost::json::object> validation();
  /// One sentence for each file that could not be read so far.
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  [[nodiscard]] std::optional<std::string> text_of(const std::string& name);
  void add_problem(const std::string& name, const std::string& what);

  Files files_;
  Path run_dir_;
  std::vector<std::string> problems_;
};

/// Everything about a run: as lines for people, and as the figures of a result line.
struct RunReport {
  std::vector<std::string> lines;
  boost::json::object figures;
};
/// Throws Error{data} if the directory has neither chain.json nor status.json.
[[nodiscard]] RunReport report_of(const Files& files, const Clock& clock, const Path& run_dir, const Queue& queue);

}  // namespace argosy::telemetry
