#include "optim/clip.hpp"

#include <cmath>

#include "core/error.hpp"

namespace argosy::optim {

double clip_coefficient(double norm, double max_norm) {
  return max_norm == 0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
}

bool SkipGuard::skips(std::int64_t step, double norm) {
  const bool finite = std::isfinite(norm);
  const bool skip =
      !finite || (config_.abs > 0 && norm > config_.abs) ||
      (config_.factor > 0 && step > config_.after && state_.taken > 0 && norm > config_.factor * state_.mean_norm);
  if (!skip) {
    state_.mean_norm = state_.taken == 0 ? norm : 0.99 * state_.mean_norm + 0.01 * norm;
    ++state_.taken;
    state_.in_a_row = 0;
    return false;
  }
  ++state_.skipped;
  if (++state_.in_a_row < config_.max_consecutive) return true;
  const std::string got =
      fmt::format("{} steps in a row were skipped because the gradient norm was {} (last: {})", state_.in_a_row,
                  finite ? "above the limits of optimizer.skip" : "not finite", norm);
  const std::string remedy =
      finite ? "raise the limits or lower schedule.lr"
             : "lower schedule.lr or inspect the data of these steps; the newest checkpoint is intact";
  throw_claim(Fault::numeric, fmt::format("step {}: {}", step, got), fmt::format("step {}", step),
              finite ? "a gradient norm below the limits of optimizer.skip" : "finite gradients", got, remedy);
}

}  // namespace argosy::optim
