#pragma once

#include <cstdint>
#include <string>

#include "crash_disk.hpp"
#include "support/checkpoints.hpp"
#include "support/fixed_clock.hpp"
#include "support/later_process_os.hpp"
#include "support/temp_folder.hpp"

/// The run whose crashes are tried, and the restart after one: the real store, opened by one rank on what the crash has
/// left, by a later process.
namespace argosy::test {

constexpr int crash_ranks = 2;
constexpr std::int64_t crash_saves = 5, crash_export = 3;  // how many; which of them is permanent

/// A model of a few hundred bytes a rank.
[[nodiscard]] Units crash_units();
[[nodiscard]] checkpoint::Sections crash_sections(std::int64_t step);

/// **Collective**, on crash_ranks. Saves as a run does that is stopped and started once; returns what reached the disk.
[[nodiscard]] std::vector<Change> record_saves(int max_checkpoints);

class Restart {
 public:
  explicit Restart(int max_checkpoints);
  struct Outcome {
    std::int64_t newest = 0;  // step loaded; 0: none was found
    std::string wrong{};      // what no restart may do
  };
  /// Opens the store on `tree`, loads the newest checkpoint for every rank, compares it, saves again.
  [[nodiscard]] Outcome after(const CrashDisk::Tree& tree);

 private:
  [[nodiscard]] std::string check(const Path& run, std::int64_t& newest);

  TempFolder folder_;
  int max_checkpoints_;
  LaterProcessOs os_;
  FixedClock clock_;
  comm::Communicator alone_;
  TestContext context_;
};

}  // namespace argosy::test
