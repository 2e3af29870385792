#pragma once

#include <cstdint>

#include "optim/optim_config.hpp"

/// What the norm of the whole gradient decides about a step: how far the gradient is scaled down, or that the step is
/// skipped. All ranks decide the same, since they have the same norm. Torch-free; the state is part of a checkpoint.
namespace argosy::optim {

/// min(1, max_norm/(norm + 1e-6)); 1 if max_norm is 0.
[[nodiscard]] double clip_coefficient(double norm, double max_norm);

class SkipGuard {
 public:
  struct State {
    double mean_norm = 0;       // running mean with decay 0.99 over the steps that were taken
    std::int64_t taken = 0;     // number of these steps
    std::int64_t skipped = 0;   // steps skipped since the first step
    std::int64_t in_a_row = 0;  // steps skipped since one was taken
  };
  explicit SkipGuard(const SkipConfig& config, State state) : config_(config), state_(state) {}

  /// Whether to skip step `step`: its norm is not finite, above `abs`, or (step > after) above factor × mean, or its
  /// loss has no tokens, as loss.error_norm_truncation has removed all. Counts the step. Throws Error{numeric} at the
  /// max_consecutive-th skipped step in a row.
  [[nodiscard]] bool skips(std::int64_t step, double norm, bool has_tokens = true);
  [[nodiscard]] const State& state() const noexcept { return state_; }

 private:
  SkipConfig config_;
  State state_;
};

}  // namespace argosy::optim
