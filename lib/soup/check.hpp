#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "comm/run_main.hpp"

/// `soup --check`: is every byte of these checkpoints what was saved? (Of all files but model.h5, which nothing reads.)
namespace argosy::soup {

struct CheckedCheckpoint {
  std::string path{};
  std::string wrong{};      // empty: all is right
  std::int64_t step = -1;   // -1: not known, as what follows
  std::string kind{};       // temp, export, soup
  std::size_t shards = 0;   // ranks that wrote it
  std::uint64_t bytes = 0;  // verified
};

/// Verifies manifests (their own digests), sizes, root digests, every block of every dataset, copied files, and that
/// values are finite; the blocks of each checkpoint are dealt over the ranks. Goes on past a damaged one and prints a
/// line for each as it is done. **Collective.** Throws Error{comm}, and as checkpoints_among.
[[nodiscard]] std::vector<CheckedCheckpoint> check_checkpoints(comm::Context& context,
                                                               const std::vector<std::string>& paths);

/// For the result line: {checkpoints, damaged, bytes, gb_per_s, verdicts[{path, step, verdict}]}.
[[nodiscard]] boost::json::object figures(const std::vector<CheckedCheckpoint>& checked, double seconds);

}  // namespace argosy::soup
