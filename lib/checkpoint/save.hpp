#pragma once

#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "comm/run_main.hpp"
#include "core/lease.hpp"

/// One save in progress. The thread that constructs and advances it calls HDF5 and MPI. Another thread, which calls
/// neither, writes the payload and, on rank 0, commits. All ranks change phase together: they commit when every rank
/// has written, and report when rank 0 has committed. If any rank fails, nothing is committed.
namespace argosy::checkpoint {

class Save {
 public:
  struct Input {
    Manifest manifest;  // without shards and files
    Path target;
    std::vector<UnitState> units;  // their memory must stay valid until the save is over
    std::vector<Attachment> attachments;
    std::string model_view;                // rank 0: bytes of model.h5; empty: none
    std::function<void()> complete_units;  // called first, by the writing thread: copies the state into `units`
    std::function<void()> make_way;        // called last before the commit, on rank 0
  };
  /// Creates the staging folder and the shards' skeletons, and begins to write. lock: rank 0's, else nullptr. Borrows
  /// the context and the lock. **Collective.** Throws Error{usage} when another job has taken over the run.
  Save(const comm::Context& context, Lease* lock, Input input);
  /// Waits for the writing thread.
  ~Save() = default;
  Save(const Save&) = delete;
  Save& operator=(const Save&) = delete;

  /// Waits until `complete_units` has returned. Not collective.
  void wait_for_units() const;
  /// The report, once the save is over; nullopt before. `wait`: waits until it is over. **Collective.** Throws as the
  /// constructor.
  [[nodiscard]] std::optional<SaveReport> advance(bool wait);

 private:
  enum class Phase { writing, committing, over };
  void enter_writing();
  [[nodiscard]] Written write(const Path& path, const ShardMap& map) const;
  void enter_committing(const Written& written);
  /// Runs `body`, which may take any time. If it throws Error{io, corrupt, data} on any rank, the save ends and says
  /// so; any other error is thrown on every rank. **Collective.** Throws Error{comm}.
  [[nodiscard]] bool all_succeed(const std::function<void()>& body);
  void end();

  const comm::Context& context_;
  Lease* const lock_;
  Input input_;
  const Staging staging_;
  const double begin_s_;
  const int rank_;  // canonical
  std::vector<std::vector<std::byte>> index_;
  SaveReport report_;
  Phase phase_ = Phase::writing;
  std::packaged_task<void()> complete_units_;
  std::shared_future<void> units_complete_;
  std::future<Written> job_;  // last: its thread uses the members above
};

}  // namespace argosy::checkpoint
