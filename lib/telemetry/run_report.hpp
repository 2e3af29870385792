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

/// What a run directory says of a run and of the jobs that make it, for people and job scripts (FORMAT.md). Anything
/// may lie there: each file is read by a strict parser, within bounds, through no link; what cannot be read becomes a
/// problem in words and hides nothing else. Changes nothing, needs no MPI.
namespace argosy::telemetry {

/// A start of a job: the newest committed step it found, and when, in seconds since 1970; step -1: its line says
/// nothing.
struct Start {
  std::int64_t step = -1;
  std::int64_t time_s = 0;
  bool operator==(const Start&) const = default;
};
/// starts.<job>: "STEP" or "STEP TIME" a line, whole lines only.
[[nodiscard]] std::vector<Start> parse_starts(std::string_view text);
/// How many of the latest starts found what is the newest step now.
[[nodiscard]] std::int64_t fruitless(const std::vector<Start>& starts, std::int64_t newest_step);

struct ChainJob {
  std::string stage, job;  // of `stages`; digits
};
/// The stages of a chain, in their order.
[[nodiscard]] const std::vector<std::string>& stages();
/// chain.json. Throws Error{corrupt}.
[[nodiscard]] std::vector<ChainJob> parse_chain(std::string_view text);

/// What Slurm's squeue says of jobs that it was asked for, "STATE REASON"; empty: it knows the job no more.
using Queue = std::map<std::string, std::string>;

/// new, done, "queued …", "failed CODE", stopped (it saved and ended before the end), cancelled (it left the queue
/// without a word), submitted (nobody has asked Slurm).
[[nodiscard]] std::string state_of(const std::string& job, const std::optional<comm::ExitRecord>& exit,
                                   const Queue& queue);

/// Of one job.
struct JobReport {
  std::vector<Start> starts;
  std::optional<comm::ExitRecord> exit;  // of its last restart that left one
};

class RunFiles {
 public:
  RunFiles(const Files& files, Path run_dir) : files_(files), run_dir_(std::move(run_dir)) {}

  /// Committed checkpoints, one a step, oldest first, such as "export/000000160": the permanent one where there are
  /// two.
  [[nodiscard]] std::vector<std::string> checkpoints();
  /// The newest step that is committed; 0: none.
  [[nodiscard]] std::int64_t newest_step();
  /// `restart`: whose exit file; nullopt: of the last one that left one.
  [[nodiscard]] JobReport job(const std::string& number, std::optional<std::int64_t> restart = std::nullopt);
  [[nodiscard]] std::vector<ChainJob> chain();  // empty: there is none
  /// status.json, its keys checked, and the last validation in metrics.jsonl.
  [[nodiscard]] std::optional<boost::json::object> training();
  [[nodiscard]] std::optional<boost::json::object> validation();
  /// What could not be read so far, a sentence each.
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  [[nodiscard]] std::optional<std::string> text_of(const std::string& name);
  void add_problem(const std::string& name, const std::string& what);

  Files files_;
  Path run_dir_;
  std::vector<std::string> problems_;
};

/// All of it, for people (a line each) and as the figures of a result line. Throws Error{data} when nothing was ever
/// submitted or trained there.
struct RunReport {
  std::vector<std::string> lines;
  boost::json::object figures;
};
[[nodiscard]] RunReport report_of(const Files& files, const Clock& clock, const Path& run_dir, const Queue& queue);

}  // namespace argosy::telemetry
