#include "train/advice.hpp"

#include <fmt/format.h>

namespace argosy::train {

ValidationAdvice::ValidationAdvice(const Left& left)
    : learns_by_heart_(for_long, left[0]),
      worse_(for_long, left[1]),
      alike_(twice, left[2]),
      one_piece_(twice, left[3]),
      repeats_(twice, left[4]) {}

ValidationAdvice::Left ValidationAdvice::left() const {
  return {learns_by_heart_.left(), worse_.left(), alike_.left(), one_piece_.left(), repeats_.left()};
}

std::vector<std::string> ValidationAdvice::on_losses(const ValidationFacts& facts) {
  constexpr double far_below = 0.75, many_passes = 2;
  std::vector<std::string> said;
  if (learns_by_heart_(facts.nll < far_below * facts.loss && facts.passes > many_passes))
    said.push_back(fmt::format(
        "the training loss without label smoothing ({:.4f}) was more than a quarter below the loss of {} ({:.4f}) in "
        "the last {} validations, and corpus {} has been read {:.1f} times: the model learns its text by heart; add "
        "text, raise model.dropout, or train for a shorter time (this warning appears once)",
        facts.nll, facts.set, facts.loss, for_long, facts.corpus, facts.passes));
  if (worse_(!facts.ends_early && !(facts.loss <= facts.best_loss)))
    said.push_back(fmt::format(
        "the loss of {} ({:.4f}) was worse than its best ({:.4f} at step {}) in the last {} validations; "
        "validation.early_stop ends such a run, and validation.keep_best keeps the best checkpoint (this warning "
        "appears once)",
        facts.set, facts.loss, facts.best_loss, facts.best_step, for_long));
  return said;
}

std::vector<std::string> ValidationAdvice::on_translations(const std::string& set,
                                                           const decode::Repetition& translations,
                                                           const decode::Repetition& references) {
  constexpr double half = 0.5, many_repeating = 0.05;
  std::vector<std::string> said;
  if (alike_(translations.distinct < half && references.distinct >= half))
    said.push_back(fmt::format(
        "only {:.0f} % of the translations of {} differ from each other: the model pays little attention to its "
        "source; train longer, and if that does not help, use a lower schedule.lr or a longer schedule.warmup (this "
        "warning appears once)",
        100 * translations.distinct, set));
  if (one_piece_(translations.top_piece > half && references.top_piece <= half))
    said.push_back(fmt::format(
        "{:.0f} % of the pieces in the translations of {} are one and the same: the model has collapsed, or has hardly "
        "begun to learn; train longer, and if that does not help, use a lower schedule.lr or a longer schedule.warmup "
        "(this warning appears once)",
        100 * translations.top_piece, set));
  if (repeats_(translations.repeating > many_repeating && translations.repeating > 2 * references.repeating))
    said.push_back(fmt::format(
        "{:.0f} % of the translations of {} repeat something four times in a row or more often: the model has not "
        "learned enough yet; train longer before blocking repeats with translate --no-repeat-ngram (this warning "
        "appears once)",
        100 * translations.repeating, set));
  return said;
}

std::string precision_advice(double fp32_per_s, double bf16_per_s) {
  constexpr double noticeable = 1.15;
  const double times = fp32_per_s / bf16_per_s;
  if (!(times > noticeable)) return {};
  return fmt::format(
      "matrix products take {:.1f} times as long in bf16 as in fp32 on this CPU (measured now, on rank 0); with "
      "precision.mode fp32, steps are faster here and more exact, but activations take twice the memory",
      times);
}

std::string NoiseAdvice::on_batches(const std::vector<data::Batch>& batches) {
  constexpr std::int64_t enough = 1000;
  constexpr double share_to_warn_of = .01;
  for (const data::Batch& batch : batches) {
    examples_ += batch.rows;
    without_ += batch.without_noise;
  }
  if (given_ || examples_ < enough || share_without() <= share_to_warn_of) return {};
  given_ = true;
  return fmt::format(
      "{:.1f} % of the examples so far are trained without noise, because their transforms made them longer than "
      "planned; raise `growth` of the transforms that draw, and run preprocess again (this warning appears once)",
      100 * share_without());
}

}  // namespace argosy::train
