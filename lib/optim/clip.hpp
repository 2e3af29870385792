#pragma once

#include <cstdint>

#include "optim/optim_config.hpp"

/// What one number, the norm of the whole gradient, decides about a step: its scale, or that it is not taken. The same
/// on all ranks, since the norm is. Torch-free values; the state is part of a checkpoint.
namespace argosy::optim {

/// min(1, max_norm/(norm + 1e-6)); 1 when max_norm is 0.
[[nodiscard]] double clip_coefficient(double norm, double max_norm);

class SkipGuard {
 public:
  struct State {
    double mean_norm = 0;       // running mean, decay 0.99, of steps that were taken
    std::int64_t taken = 0;     // steps in it
    std::int64_t skipped = 0;   // since the first step
    std::int64_t in_a_row = 0;  // skipped
  };
  explicit SkipGuard(const SkipConfig& config, State state) : config_(config), state_(state) {}

  /// Whether step `step` is left out: its norm is not finite, above `abs`, or (step > after) above factor × mean.
  /// Counts it. Throws Error{numeric} when max_consecutive steps in a row were.
  [[nodiscard]] bool skips(std::int64_t step, double norm);
  [[nodiscard]] const State& state() const noexcept { return state_; }

 private:
  SkipConfig config_;
  State state_;
};

}  // namespace argosy::optim
