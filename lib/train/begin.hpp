#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.hpp"
#include "comm/run_main.hpp"

/// Carries out --from-scratch and --resume DIR once per job, although the scheduler may restart the job with the same
/// command line. The job names its request (ARGOSY_REQUEST). Each checkpoint that results has this name in its history.
/// The commit of a checkpoint is the record: a job that dies at any moment either has such a checkpoint to resume from,
/// or carries out the request again.
namespace argosy::train {

/// Adds to a run's history that this request began it at `step`.
void add_request(boost::json::array& history, std::int64_t step, std::string_view request);

/// Whether the run directory has a checkpoint from this request. Ignores checkpoints whose manifest cannot be read.
/// **Collective.** Throws Error{io}.
[[nodiscard]] bool is_carried_out(const comm::Context& context, const Path& run_dir, const std::string& request);

/// Throws Error{corrupt} for a checkpoint that does not come from `request`. If the checkpoints of this job are
/// damaged, loading would otherwise fall back to the older run, which the job was told to leave.
void require_from(const checkpoint::Reader& candidate, const std::string& request);

/// Where a start of a job begins: as --from-scratch and --resume say, unless an earlier start has carried that out.
class Beginning {
 public:
  /// resume: "auto" or the directory of a checkpoint; request: the job's name for what it asks. Borrows both.
  /// **Collective.** Throws Error{io}.
  Beginning(comm::Context& context, checkpoint::Store& store, bool from_scratch, std::string resume,
            const std::string& request);
  [[nodiscard]] bool is_from_scratch() const noexcept { return from_scratch_ && !goes_on_; }
  /// Whether an earlier start has carried out the request.
  [[nodiscard]] bool goes_on() const noexcept { return goes_on_; }
  /// Empty: none.
  [[nodiscard]] const std::string& request() const noexcept { return request_; }
  /// A directory that the run is asked to resume from.
  [[nodiscard]] std::optional<Path> resume_from() const;
  /// The checkpoint to resume from. **Collective.** Throws as checkpoint::open_on_all().
  [[nodiscard]] std::optional<checkpoint::Reader> checkpoint() const;

 private:
  comm::Context& context_;
  checkpoint::Store& store_;
  bool from_scratch_;
  std::string resume_, request_;
  bool goes_on_ = false;
};

/// Renames the folders of an earlier run: `checkpoints` to `checkpoints.old-<time>`, `export` likewise.
/// **Collective.** Throws Error{io}.
void set_aside(const comm::Context& context, const Path& run_dir);

}  // namespace argosy::train
