#pragma once

#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/shard_file.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/vote.hpp"
#include "comm/run_main.hpp"
#include "core/lease.hpp"

/// One save on its way. HDF5 and MPI are used by the thread that makes and advances it; the payload, and on rank 0 the
/// commit, are left to a thread that uses neither. Ranks move on together: from writing to committing when all have
/// written, from committing to the report when rank 0 has committed. On a failure anywhere nothing is committed.
namespace argosy::checkpoint {

class Save {
 public:
  struct Input {
    Manifest manifest;  // without shards and files
    Path target;
    std::vector<UnitState> units;  // their memory stays where it is until the save is over
    std::vector<Attachment> attachments;
    std::string model_view;  // rank 0: bytes of model.h5; empty: none
    /// Called first by the writing thread: brings the state into `units`.
    std::function<void()> complete_units;
    std::function<void()> make_way;  // last thing before the commit, on rank 0
  };
  /// Opens the staging folder, makes the shards' skeletons and begins to write. lock: on rank 0. Borrows both.
  /// **Collective.** Throws Error{usage} when another job has taken over the run.
  Save(const comm::Context& context, Lease* lock, Input input);
  /// Waits for the thread at work.
  ~Save() = default;
  Save(const Save&) = delete;
  Save& operator=(const Save&) = delete;

  /// Waits until the units' state has been brought into them. Not collective.
  void wait_for_units() const;
  /// The report once the save is over; `wait`: it is then. **Collective.** Throws Error{usage} as above.
  [[nodiscard]] std::optional<SaveReport> advance(bool wait);

 private:
  enum class Phase { writing, committing, over };
  void enter_writing();
  void complete_units();
  [[nodiscard]] std::string write(const Path& path, const ShardMap& map) const;
  void enter_committing(const Ballot& written);
  [[nodiscard]] bool failed(const Ballot& ballot);
  void end();

  const comm::Context& context_;
  Lease* const lock_;
  Input input_;
  const Staging staging_;
  const double begin_s_;
  const int rank_;  // canonical
  ShardIndex index_;
  SaveReport report_;
  Phase phase_ = Phase::writing;
  std::promise<void> units_promise_;
  std::future<void> units_complete_;
  std::future<std::string> job_;  // last: it uses what is above
};

}  // namespace argosy::checkpoint
