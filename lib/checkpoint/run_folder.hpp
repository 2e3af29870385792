#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "core/clock.hpp"
#include "core/file.hpp"
#include "core/log.hpp"

/// A run directory as its owner, rank 0 of the job that holds the lock, keeps it: which checkpoints there are, which of
/// them is to be loaded, what is put aside, kept or removed (FORMAT.md §1). Knows nothing of other ranks. One thread.
namespace argosy::checkpoint {

class RunFolder {
 public:
  /// Borrows clock and log. Touches nothing yet.
  RunFolder(const Files& files, const Clock& clock, const Log& log, Path run_dir, int max_checkpoints);

  [[nodiscard]] const Path& path() const noexcept { return run_dir_; }
  /// checkpoints/<step> or export/<step>.
  [[nodiscard]] Path place_of(Kind kind, std::int64_t step) const;

  /// Creates the directory. Throws Error{io}.
  void make() const;
  /// Removes what dead saves have left. Throws Error{io}.
  void sweep() const;
  /// The run's identity from run.json, which is made with the directory; one that got its checkpoints from elsewhere
  /// takes over their run. Throws Error{corrupt}, Error{io}.
  const std::string& adopt();
  /// The newest sound candidate; damaged ones before it are put aside. nullopt: none was ever committed. Throws
  /// Error{corrupt} when there are candidates and none is sound, Error{usage} for a format that is too new.
  [[nodiscard]] std::optional<Reader> find_newest() const;
  /// After a commit: points `latest` at it and removes what need not be kept. What fails is logged: it does no harm.
  void tidy(const Path& committed) const;

 private:
  struct Candidate {
    std::int64_t step = 0;
    Path directory;
  };

  /// Committed directories of one folder, newest first; whether they are sound is another question.
  [[nodiscard]] std::vector<Candidate> candidates_of(const Path& folder) const;
  [[nodiscard]] std::vector<Candidate> all_candidates() const;
  void quarantine(const Path& directory) const;
  void retain() const;
  void point_latest(const Path& directory) const;

  Files files_;
  const Clock& clock_;
  const Log& log_;
  Path run_dir_;
  int max_checkpoints_;
  std::string run_uuid_;
};

}  // namespace argosy::checkpoint
