#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "core/random.hpp"
#include "support/checkpoints.hpp"
#include "support/fault_options.hpp"
#include "support/temp_folder.hpp"

/// A run with two checkpoints by any number of ranks, the newer of which is damaged, loaded and made whole again,
/// thousands of times.
namespace argosy::test {

class DamagedRun {
 public:
  static constexpr std::int64_t older_step = 1, newer_step = 2;

  explicit DamagedRun(int ranks);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] Path newer() const { return at(newer_step); }
  [[nodiscard]] Path older() const { return at(older_step); }
  [[nodiscard]] Path shard(const Path& checkpoint, int rank) const;
  /// Writes a sound checkpoint of the same content by another save, which may be of another run.
  [[nodiscard]] Path twin(const std::string& run_uuid, const std::string& nonce) const;

  /// Step that a start loads into one rank; 0 when it got other bytes than were saved in that step. What was put aside
  /// is then back in its place.
  [[nodiscard]] std::int64_t load();

  enum class Verdict { sound, detected, wrong, crashed, hung };
  /// What a process of its own, without MPI and with an alarm of 10 s, makes of the newer one: its bytes, an error, or
  /// other bytes. Behind an error it must get the older one's bytes.
  [[nodiscard]] Verdict read_in_a_child() const;

  /// A damage to one file that lasts as long as the object.
  class Damage {
   public:
    Damage(Path path, const std::string& content);  // instead of what is there
    ~Damage();
    Damage(const Damage&) = delete;
    Damage& operator=(const Damage&) = delete;

   private:
    Path path_;
    std::string before_;
  };

 private:
  [[nodiscard]] Path at(std::int64_t step) const;
  [[nodiscard]] Path run() const { return folder_ / "run"; }

  int ranks_;
  TempFolder folder_;
  Os os_;
  TestContext context_{os_, world()};
  std::optional<checkpoint::Store> store_;
};

/// Nothing wrong was taken for right.
[[nodiscard]] inline bool is_safe(DamagedRun::Verdict verdict) {
  return verdict == DamagedRun::Verdict::sound || verdict == DamagedRun::Verdict::detected;
}

[[nodiscard]] std::string content_of(const Path& path);

}  // namespace argosy::test
