#pragma once

#include <optional>
#include <span>
#include <string>

#include "comm/run_main.hpp"

/// The number of threads of a rank. The last bits of a run depend on it, so checkpoints record it.
namespace argosy::train {

struct Threads {
  int count = 1;
  bool is_asked = false;  // set by OMP_NUM_THREADS
  std::string why{};
};

/// Finds the number of threads and sets it for LibTorch: OMP_NUM_THREADS if that is set, else this rank's share of its
/// node's processors, by affinity and by the quota of its control group. Call it before the first tensor is made.
/// **Collective.**
Threads set_up_threads(const comm::Context& context);

/// This rank's share: a processor is divided among the ranks of the node that may use it, and the quota among all ranks
/// of the node. At least 1. processors: for each rank of the node, '1' for each processor that it may use. quota: the
/// number of processors that the ranks of the node may keep busy together.
[[nodiscard]] int threads_of(std::span<const std::string> processors, std::size_t rank, std::optional<double> quota);

}  // namespace argosy::train
