#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/file.hpp"
#include "core/log.hpp"
#include "telemetry/flops.hpp"
#include "telemetry/telemetry_config.hpp"

/// Where the figures of a run go. Metrics makes one record for each log interval and for each validation. Every sink
/// gets the same records and writes them in its own format. `sink_kinds` is the table of all sinks.
namespace argosy::telemetry {

/// What the tokens of one corpus come to, which is a task where there are tasks.
struct CorpusSums {
  double nll = 0, tgt_tokens = 0;  // unsmoothed, over these tokens
  bool operator==(const CorpusSums&) const = default;
};

/// The figures of one step, over all ranks.
struct StepMetrics {
  std::int64_t step = 0;
  double fraction_done = 0;  // of the schedule, 0 to 1
  double epoch = 0;
  double loss = 0, nll = 0;     // means: as optimized, over tgt_tokens that are not truncated; unsmoothed, over all
  double truncated_tokens = 0;  // of tgt_tokens, removed from the loss by loss.error_norm_truncation
  double lr = 0;
  double grad_norm = 0;                   // before clipping
  std::vector<double> component_norms{};  // where there are several components
  std::vector<CorpusSums> corpora{};      // where there are several
  bool clipped = false, skipped = false;
  std::int64_t n_clips = 0, n_skipped = 0;  // since the first step
  std::int64_t src_tokens = 0, tgt_tokens = 0, padded_tokens = 0;
  std::int64_t total_tgt_tokens = 0;  // since the first step
  Work work;
  double step_s = 0, data_wait_s = 0;  // of the slowest rank
  std::uint64_t memory_bytes = 0;      // peak of the fullest rank; 0: unknown
};

/// The record of one log interval.
struct StepRecord {
  StepMetrics last;           // the step that ends the interval
  int ranks = 1;              // ranks at work
  std::int64_t steps = 0;     // in the interval
  double loss = 0, nll = 0;   // over the steps that were not skipped; NaN when all were
  double clip_frac = 0;       // share of the steps that were clipped
  double truncated_frac = 0;  // share of the tgt_tokens of the steps that were not skipped
  double src_tokens_per_s = 0, tgt_tokens_per_s = 0, padded_tokens_per_s = 0;  // all ranks together
  double tflops_per_rank = 0;                                                  // causal convention
  std::optional<double> mfu, mfu_full;  // absent where the device's peak is unknown
  double step_ms = 0, data_wait_ms = 0;
  std::optional<double> eta_s;  // absent until the run has advanced
  std::map<std::string, double>
      of_parts{};  // of several corpora and components: "nll/en-fr", "share/en-fr", "grad_norm/encoder.en"
};

/// One figure of a validation: "loss" 3.1, "chrf" 41.2.
struct Figure {
  std::string name;
  double value = 0;
};

/// What the model makes of a line of a validation set.
struct Sample {
  std::string source, reference, translation;
};

/// The record of one validation set.
struct ValidationRecord {
  std::int64_t step = 0;
  std::string set;
  std::vector<Figure> figures;
  std::map<std::string, std::string> signatures{};  // of those figures that sacreBLEU defines, by name
  std::vector<Figure> more{};                       // figures that the log line leaves out
  std::vector<Sample> samples{};
  std::vector<std::string> languages{};  // of a set that names its corpus: source, target
};

/// The figures of a record by name, as FORMAT.md lists them. A figure that is unknown is null.
[[nodiscard]] boost::json::object figures_of(const StepRecord& record);
/// Those of the log line, then the others.
[[nodiscard]] std::vector<Figure> figures_of(const ValidationRecord& record);

/// One place that records go to. A constructor opens it and a destructor closes it. One thread.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  /// Writes a record completely or not at all. Throws Error{io}; the next record may succeed again.
  virtual void step(const StepRecord& record) = 0;
  virtual void validation(const ValidationRecord& record) = 0;
};

/// What a sink is opened with. Borrows the log and the clock.
struct SinkSetup {
  Files files;
  Path path;                      // run_dir/<name of the sink>
  std::int64_t resumed_step = 0;  // the run continues after this step; records of later steps are void
  const Log& log;
  const Clock& clock;
  TelemetryConfig config{};
  boost::json::object configuration{};  // of the whole run
};

/// One row of the table of sinks.
struct SinkKind {
  std::string_view name;  // of its file or folder in run_dir
  bool (*is_wanted)(const TelemetryConfig& config);
  std::unique_ptr<Sink> (*open)(const SinkSetup& setup);  // throws Error{io}
};

/// All sinks, in the order in which they are written.
[[nodiscard]] std::span<const SinkKind> sink_kinds();

}  // namespace argosy::telemetry
