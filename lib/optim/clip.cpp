#include "optim/clip.hpp"

#include <cmath>

#include "core/error.hpp"

namespace argosy::optim {

double clip_coefficient(double norm, double max_norm) {
  return max_norm == 0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
}

bool SkipGuard::skips(std::int64_t step, double norm, bool has_tokens) {
  const bool finite = std::isfinite(norm);
  const bool skip =
      !has_tokens || !finite || (config_.abs > 0 && norm > config_.abs) ||
      (config_.factor > 0 && step > config_.after && state_.taken > 0 && norm > config_.factor * state_.mean_norm);
  if (!skip) {
    state_.mean_norm = state_.taken == 0 ? norm : 0.99 * state_.mean_norm + 0.01 * norm;
    ++state_.taken;
    state_.in_a_row = 0;
    return false;
  }
  ++state_.skipped;
  if (++state_.in_a_row < config_.max_consecutive) return true;
  std::string why = fmt::format("the gradient norm was not finite (last: {})", norm), wanted = "finite gradients",
              remedy = "lower schedule.lr or inspect the data of these steps; the newest checkpoint is intact";
  if (!has_tokens) {
    why = "loss.error_norm_truncation removed all tokens of the last one";
    wanted = "tokens that bear loss";
    remedy =
        "raise loss.error_norm_truncation or loss.error_norm_truncation_after: while a model predicts nothing, error "
        "norms "
        "are near 1";
  } else if (finite) {
    why = fmt::format("the gradient norm was above the limits of optimizer.skip (last: {})", norm);
    wanted = "a gradient norm below the limits of optimizer.skip";
    remedy = "raise the limits or lower schedule.lr";
  }
  const std::string got = fmt::format("{} steps in a row were skipped because {}", state_.in_a_row, why);
  throw_claim(Fault::numeric, fmt::format("step {}: {}", step, got), fmt::format("step {}", step), wanted, got, remedy);
}

}  // namespace argosy::optim
