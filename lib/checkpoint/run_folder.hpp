#pragma once

#include <cstdint>
#include <functional>
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

/// A run directory as its owner, rank 0 of the job that holds the lock, keeps it: which checkpoints there are, which of
/// them is to be loaded, what is put aside, kept or removed (FORMAT.md §1, README.md). Knows nothing of other ranks.
/// Not thread-safe: a tidy() in another thread is waited for before the next call.
namespace argosy::checkpoint {

class RunFolder {
 public:
  /// Borrows clock and log. Touches nothing yet.
  RunFolder(const Files& files, const Clock& clock, const Log& log, Path run_dir, std::int64_t max_checkpoints);

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

  /// Starts to look for a checkpoint to load.
  void begin_walk();
  /// The next one, newest first, that is full, finite, of this run, and whole as far as its manifest and the sizes of
  /// its files say; others are passed over. nullopt: there never was one. Throws Error{corrupt} when there is none
  /// left, with the reasons; Error{usage} for a format that is too new.
  [[nodiscard]] std::optional<Reader> next_candidate();
  /// Takes note that a candidate proved to be damaged (Error{corrupt}) or could not be read.
  void pass_over(const Path& directory, const Error& why);
  /// Whether a newer one was damaged or could not be read.
  [[nodiscard]] bool has_fallen_back() const noexcept;
  /// Renames those found damaged to .bad-<step>-<reason>, of which the newest two are kept. What fails is logged.
  void put_aside();
  /// Error{usage} with the list of sound checkpoints of the run that are newer than `named`, if there are any.
  void refuse_newer(const Reader& named) const;
  /// Renames them to .old-<step>-<nonce>. Throws Error{io}.
  void abandon_newer(const Reader& named);
  /// After a load: protects what was loaded until five newer ones have been committed, and tidies as after a commit.
  void settle(const Path& loaded);
  /// Before a commit to `target`: what was passed over at loading and lies there makes room. Throws Error{io}.
  void make_way(const Path& target);
  /// After a commit: points `latest` at it and, now or at the next load, removes what need not be kept. What fails is
  /// logged: it does no harm.
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
    std::optional<Reader> reader;  // of a committed, whole checkpoint of this run
    Flaw flaw = Flaw::unfit;       // else
    std::string why{};
  };

  [[nodiscard]] std::vector<Candidate> candidates_of(const Path& folder) const;
  [[nodiscard]] std::vector<Candidate> all_candidates() const;
  [[nodiscard]] bool is_link(const Path& path) const;
  [[nodiscard]] std::optional<Path> link_in(const Reader& reader) const;
  [[nodiscard]] Finding inspect(const Candidate& candidate) const;
  void add(const Path& directory, Flaw flaw, std::string why);
  [[noreturn]] void refuse_to_start_over(const std::string& quarantined) const;
  [[nodiscard]] std::string first_quarantined() const;
  void quarantine(const PassedOver& bad);
  void remove_quarantined(const Path& folder) const;
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
  std::vector<Candidate> waiting_;  // of the walk, oldest first
  std::vector<PassedOver> passed_over_;
  mutable Inspected inspected_{files_};
  Path loaded_, committed_;
  int commits_ = 0;        // since then
  std::string keep_text_;  // whose bad lines were warned of
};

}  // namespace argosy::checkpoint
