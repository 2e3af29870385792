#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/inspected.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "core/log.hpp"

/// Manages a run directory (FORMAT.md §1, README.md): finds its checkpoints, chooses the one to load, and sets aside,
/// keeps or removes the others. Used by its owner, rank 0 of the job that holds the lock. Not thread-safe: a tidy() in
/// another thread must end before the next call.
namespace argosy::checkpoint {

class RunFolder {
 public:
  /// Borrows the clock and the log. Does not access the directory.
  RunFolder(const Files& files, const Clock& clock, const Log& log, Path run_dir, std::int64_t max_checkpoints);

  [[nodiscard]] const Path& path() const noexcept { return run_dir_; }
  /// checkpoints/<step> or export/<step>.
  [[nodiscard]] Path place_of(Kind kind, std::int64_t step) const;

  /// Creates the directory. Throws Error{io}.
  void make() const;
  /// Removes what dead saves and removals have left. Throws Error{io}.
  void sweep() const;
  /// The run's identity from run.json. Where that file is missing, it is made: with the identity of the newest
  /// checkpoint, or a new one. Throws Error{corrupt}, Error{io}.
  const std::string& adopt();

  /// Starts the search for a checkpoint to load.
  void begin_walk();
  /// The next checkpoint, newest first, that belongs to this run, has optimizer state, is finite, and is complete by
  /// its manifest and the sizes of its files. Skips others. nullopt: no checkpoint was ever committed. Throws
  /// Error{corrupt} with all reasons when none is left; Error{usage} for a format that is too new.
  [[nodiscard]] std::optional<Reader> next_candidate();
  /// Notes that a candidate is damaged (Error{corrupt}) or could not be read.
  void pass_over(const Path& directory, const Error& why);
  /// Whether a newer checkpoint was damaged or could not be read.
  [[nodiscard]] bool has_fallen_back() const noexcept;
  /// Renames damaged checkpoints to .bad-<step>-<reason>, of which the newest two are kept. Logs failures.
  void put_aside();
  /// Throws Error{usage}, which lists them, when the run has sound checkpoints newer than `named`.
  void refuse_newer(const Reader& named) const;
  /// Renames them to .old-<step>-<nonce>. Throws Error{io}.
  void abandon_newer(const Reader& named);
  /// Call it after a load. Keeps the loaded checkpoint until five newer ones have been committed, and tidies as after a
  /// commit.
  void settle(const Path& loaded);
  /// Call it before a commit to `target`. Renames a checkpoint of that name that the load skipped. Throws Error{io}.
  void make_way(const Path& target);
  /// Call it after a commit. Points `latest` at the checkpoint and removes old ones, now or at the next load. Logs
  /// failures.
  void tidy(const Path& committed, Tidy when = Tidy::now);

 private:
  struct Candidate {
    std::int64_t step = 0;
    Path directory;
  };
  enum class Flaw { files, content, unreadable, unfit };
  struct PassedOver {
    Path directory;
    Flaw flaw;
    std::string why;
  };
  struct Finding {
    std::optional<Reader> reader;  // of a committed, complete checkpoint of this run
    Flaw flaw = Flaw::unfit;       // otherwise
    std::string why{};
  };

  [[nodiscard]] std::vector<std::string> names_in(const Path& folder) const;
  [[nodiscard]] std::vector<Candidate> candidates_in(std::initializer_list<const char*> folders) const;
  [[nodiscard]] std::optional<Path> link_in(const Reader& reader) const;
  [[nodiscard]] Finding inspect(const Candidate& candidate, bool just_committed = false) const;
  void add(const Path& directory, Flaw flaw, std::string why);
  [[noreturn]] void refuse_to_start_over(const std::string& quarantined) const;
  [[nodiscard]] std::string first_quarantined() const;
  void quarantine(const PassedOver& bad);
  void remove(const Path& directory) const;
  [[nodiscard]] std::set<std::int64_t> steps_to_keep();
  [[nodiscard]] std::optional<Inspected::Facts> facts_of_sound(const Candidate& candidate);
  void retain();
  void point_latest(const Path& directory) const;
  void warn_if_fails(const char* warning, const std::function<void()>& body) const;

  Files files_;
  const Clock& clock_;
  const Log& log_;
  Path run_dir_;
  std::int64_t max_checkpoints_;
  std::string run_uuid_;
  std::vector<Candidate> waiting_;  // of the search, oldest first
  std::vector<PassedOver> passed_over_;
  mutable Inspected inspected_{files_};
  Path loaded_, committed_;
  int commits_ = 0;        // since the load
  std::string keep_text_;  // the content of keep.txt whose bad lines were logged
};

}  // namespace argosy::checkpoint
